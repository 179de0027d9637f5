-- Payments as they arrive: some are sent twice, and some come late.
CREATE STREAM payments (
  id STRING, customer_id BIGINT, amount DECIMAL(10,2), paid_at TIMESTAMP METADATA FROM 'timestamp',
  WATERMARK FOR paid_at AS paid_at - INTERVAL '1' MINUTE
) WITH (connector = 'kafka', topic = 'payments', format = 'json',
        'properties.bootstrap.servers' = 'broker:9092')
  DEDUPLICATE ON (id) WITHIN INTERVAL '1' DAY
  ALLOWED LATENESS INTERVAL '1' HOUR ON LATE REJECT;
