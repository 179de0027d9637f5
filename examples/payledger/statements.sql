-- Payments as they are reported: some come late, some twice; the first report of an event is taken.
CREATE STREAM payments (event_id BIGINT, kind STRING, merchant_id BIGINT, currency STRING, amount DECIMAL(18,2),
    capture_id BIGINT, event_time TIMESTAMP, WATERMARK FOR event_time AS event_time - INTERVAL '1' HOUR)
  DEDUPLICATE ON (event_id);

CREATE TABLE merchants (merchant_id BIGINT, segment STRING, PRIMARY KEY (merchant_id));

-- What share of a capture is held back, by segment; a version is valid until the next one takes effect.
CREATE TABLE reserve_policy (segment STRING, effective_from TIMESTAMP, rate DECIMAL(5,4), version INT, PRIMARY KEY (segment))
  WITH (effective_from = 'effective_from');

-- Each event with the version of the policy that was valid at its time. The segment is passed on, so that slices can be named by it.
CREATE MATERIALIZED VIEW merchant_balance AS
SELECT b.merchant_id, b.currency, m.segment, b.available_balance, b.pending_balance, b.reserve_hold, b.last_event_time, b.policy_version
FROM merchant_balance_of(TABLE(
    SELECT e.merchant_id, e.currency, e.event_time, e.event_id, e.kind, e.amount, e.capture_id, p.rate, p.version
    FROM payments e
    JOIN merchants m ON m.merchant_id = e.merchant_id
    JOIN reserve_policy FOR SYSTEM_TIME AS OF e.event_time AS p ON p.segment = m.segment)) b
JOIN merchants m ON m.merchant_id = b.merchant_id;

-- No event from before the watermark is expected any more.
CREATE MATERIALIZED VIEW payments_watermark AS
SELECT max(event_time) - INTERVAL '1' HOUR AS source_watermark FROM payments;

CREATE VIEW merchant_balance_current AS
SELECT b.*, w.source_watermark FROM merchant_balance b CROSS JOIN payments_watermark w;

CREATE MATERIALIZED VIEW segment_balance AS
SELECT segment, currency, max(policy_version) AS policy_version, count(*) AS merchants, sum(available_balance) AS available,
    sum(pending_balance) AS pending, sum(reserve_hold) AS reserve
FROM merchant_balance GROUP BY segment, currency;
