-- Made-up visits: some come late, some twice.
CREATE STREAM visits (id BIGINT, user INT, page STRING, device STRING, at TIMESTAMP,
    WATERMARK FOR at AS at - INTERVAL '5' SECOND)
  DEDUPLICATE ON (id) WITHIN INTERVAL '1' DAY
  WITH (connector = 'datagen', 'rows-per-second' = '500', 'fields.id.kind' = 'sequence',
    'fields.user.min' = '1', 'fields.user.max' = '1000', 'fields.user.distribution' = 'zipf',
    'fields.page.values' = 'home,search,product,cart,pay', 'fields.page.weights' = '50,20,15,10,5',
    'fields.device.values' = 'mobile,desktop,tablet',
    'lateness.share' = '0.02', 'lateness.max' = '30 s', 'duplicates.share' = '0.05');

CREATE MATERIALIZED VIEW by_page AS SELECT page, count(*) AS visits FROM visits GROUP BY page;

CREATE MATERIALIZED VIEW by_device AS
SELECT page, device, count(*) AS visits, count(DISTINCT user) AS users FROM visits GROUP BY page, device;
