-- Sales by shop, from a directory to which others write: the day is in the path.
CREATE STREAM sales (shop STRING, amount DECIMAL(10, 2), day DATE METADATA FROM 'partition.day')
  WITH (connector = 'filesystem', path = '{path}/**/*.csv', 'scan.settle' = '100 ms', 'source.monitor-interval' = '100 ms');

CREATE MATERIALIZED VIEW sold AS
SELECT day, shop, count(*) AS sales, sum(amount) AS total FROM sales GROUP BY day, shop;
