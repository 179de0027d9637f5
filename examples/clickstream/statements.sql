-- Made-up visits of a web site: some come late, some twice.
CREATE STREAM visits (id BIGINT, user STRING, url STRING, device STRING, at TIMESTAMP,
    WATERMARK FOR at AS at - INTERVAL '5' SECOND)
  DEDUPLICATE ON (id) WITHIN INTERVAL '1' DAY
  WITH (connector = 'datagen', 'rows-per-second' = '100', 'fields.id.kind' = 'sequence',
    'fields.user.values' = 'User_1,User_2,User_3,User_4,User_5,User_6,User_7,User_8,User_9',
    'fields.url.values' = './home,./search,./product,./cart,./pay', 'fields.url.weights' = '50,20,15,10,5',
    'fields.device.values' = 'mobile,desktop,tablet', 'fields.device.weights' = '60,30,10',
    'lateness.share' = '0.02', 'lateness.max' = '30 s', 'duplicates.share' = '0.05');

CREATE MATERIALIZED VIEW visits_by_url AS
SELECT url, count(*) AS visits FROM visits GROUP BY url;

CREATE MATERIALIZED VIEW visits_by_url_device AS
SELECT url, device, count(*) AS visits, count(DISTINCT user) AS users FROM visits GROUP BY url, device;

CREATE MATERIALIZED VIEW visits_by_user AS
SELECT user, url, device, count(*) AS visits, max(at) AS last FROM visits GROUP BY user, url, device;
