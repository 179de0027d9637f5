-- The customers of the shop, as its database has them.
CREATE TABLE customers (id BIGINT, name STRING, country STRING, PRIMARY KEY (id) NOT ENFORCED)
  WITH (connector = 'kafka', topic = 'shop.customers', format = 'debezium-json',
        'properties.bootstrap.servers' = 'broker:9092');
