-- Orders from a topic: the key of a message is the user.
CREATE STREAM orders (user STRING KEY, order_id BIGINT, amount DECIMAL(10, 2))
  WITH (kafka_topic = 'orders', partitions = 2, value_format = 'json', brokers = '{brokers}');

CREATE MATERIALIZED VIEW spent AS
SELECT user, count(*) AS orders, sum(amount) AS total FROM orders GROUP BY user;
