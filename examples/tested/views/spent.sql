CREATE MATERIALIZED VIEW spent AS
SELECT customer_id, sum(amount) AS spent, max(paid_at) AS last_paid_at
FROM payments
GROUP BY customer_id;

-- Customers who have paid within the last 30 days.
CREATE MATERIALIZED VIEW active AS
SELECT customer_id, spent FROM spent WHERE last_paid_at > now() - INTERVAL '30' DAY;
