-- Orders of PostgreSQL, as they change there.
CREATE CONNECTION shop TO POSTGRES (HOST '127.0.0.1', PORT {postgres}, DATABASE 'postgres', USER 'postgres');
CREATE SOURCE shop FROM POSTGRES CONNECTION shop (PUBLICATION 'headrace') FOR TABLES (orders);

-- What each user has spent: a cancelled order counts no more.
CREATE MATERIALIZED VIEW user_revenue AS
SELECT user_id, count(*) AS orders, sum(amount) AS total_revenue
FROM orders WHERE status <> 'cancelled' GROUP BY user_id;

-- In the stores that applications read.
CREATE SINK user_revenue_redis FROM user_revenue
WITH (connector = 'redis', host = '127.0.0.1', port = {redis}, pattern = 'revenue:{{user_id}}');
CREATE SECRET cassandra FROM FILE '{password}';
CREATE SINK user_revenue_cassandra FROM user_revenue
WITH (connector = 'cassandra', hosts = '127.0.0.1', port = {cassandra}, datacenter = 'datacenter1',
      user = 'cassandra', password = SECRET cassandra, keyspace = 'shop', table = 'user_revenue', create_table = true)
