--@ load ../views
--@ at 2026-03-01 12:00:00

--@ test payments of a customer add up
--@ insert payments
--| id  | customer_id | amount | paid_at
--| p-1 |           1 |  10.00 | 2026-03-01 10:00:00
--| p-2 |           1 |   5.50 | 2026-03-01 11:00:00
--| p-3 |           2 |   7.00 | 2026-03-01 11:30:00
--@ rows spent
--| customer_id | spent
--|           1 | 15.50
--|           2 |  7.00

--@ test a payment that is sent again within a day counts once
INSERT INTO payments VALUES ('p-1', 1, 10.00, TIMESTAMP '2026-03-01 12:00:00');
--@ advance 23 hours
INSERT INTO payments VALUES ('p-1', 1, 10.00, TIMESTAMP '2026-03-02 11:00:00');
--@ duplicates payments 1
--@ advance 2 hours
INSERT INTO payments VALUES ('p-1', 1, 10.00, TIMESTAMP '2026-03-02 13:00:00');
--@ duplicates payments 1
--@ rows spent
--| spent
--| 20.00

--@ test a payment that is too late is rejected
--@ insert payments
--| id  | customer_id | amount | paid_at
--| p-1 |           1 |  10.00 | 2026-03-01 12:00:00
--| p-2 |           1 |  20.00 | 2026-03-01 11:00:00
--| p-3 |           1 |  40.00 | 2026-03-01 10:58:00
--@ late payments 1
--@ rejects payments
--| id  | amount
--| p-3 |  40.00
--@ rows spent
--| spent
--| 30.00

--@ test a customer who stops paying is no longer active
--@ insert payments
--| id  | customer_id | amount | paid_at
--| p-1 |           1 |  10.00 | 2026-03-01 12:00:00
--@ changes active
--| +/- | customer_id | spent
--|  +  |           1 | 10.00
--@ advance 29 days
--@ changes active
--| +/- | customer_id | spent
--@ advance 1 day
--@ changes active
--| +/- | customer_id | spent
--|  -  |           1 | 10.00

--@ test countries are of the customers as they are now
--@ alone by_country
--@ insert spent
--| customer_id | spent
--|           1 | 10.00
--|           2 |  5.00
--@ insert customers
--| id | name | country
--|  1 | Ann  | CH
--|  2 | Bob  | CH
--@ changes by_country
--| +/- | country | customers | spent
--|  +  | CH      |         2 | 15.00
--@ insert customers
--| id | name | country
--|  2 | Bob  | NULL
--@ changes by_country
--| +/- | country | customers | spent
--|  -  | CH      |         2 | 15.00
--|  +  | CH      |         1 | 10.00
--|  +  | NULL    |         1 |  5.00
