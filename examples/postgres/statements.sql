-- Tables that follow those of PostgreSQL, joined.
CREATE CONNECTION shop TO POSTGRES (HOST '127.0.0.1', PORT {port}, DATABASE 'postgres', USER 'postgres');
CREATE SOURCE shop FROM POSTGRES CONNECTION shop (PUBLICATION 'headrace') FOR TABLES (customers, orders);

CREATE MATERIALIZED VIEW spent AS
SELECT c.name, count(*) AS orders, sum(o.amount) AS total
FROM orders o JOIN customers c ON o.customer = c.id GROUP BY c.name;
