-- What customers of each country have spent. It reads a view of a file that comes later.
CREATE MATERIALIZED VIEW by_country AS
SELECT c.country, count(*) AS customers, sum(s.spent) AS spent
FROM spent s JOIN customers c ON c.id = s.customer_id
GROUP BY c.country;

CREATE SINK by_country_out INTO KAFKA CONNECTION broker (TOPIC 'by_country') FROM by_country;
