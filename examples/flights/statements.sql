-- The flights that left New York's three airports in 2013, as they took off.
CREATE STREAM flights (
  scheduled TIMESTAMP,  -- when it should have left: event time, and it arrives out of order
  carrier   STRING,
  flight    INT,
  tailnum   STRING,     -- NULL where it was never recorded
  origin    STRING,
  dest      STRING,
  distance  INT,
  dep_delay INT         -- minutes; negative if early, NULL if cancelled
);

-- What is known about airlines, airports, planes and weather. It changes while flights arrive.
CREATE TABLE airlines (carrier STRING PRIMARY KEY, name STRING);
CREATE TABLE airports (faa STRING PRIMARY KEY, name STRING);
CREATE TABLE planes   (tailnum STRING PRIMARY KEY, year INT, manufacturer STRING, model STRING, seats INT);
CREATE TABLE weather  (
  origin     STRING,
  time_hour  TIMESTAMP,
  wind_speed DOUBLE,    -- mph
  precip     DOUBLE,    -- inches in the hour
  visib      DOUBLE,    -- miles
  PRIMARY KEY (origin, time_hour)
);

CREATE MATERIALIZED VIEW delay_by_carrier AS
SELECT carrier,
       count(*)                    AS flights,
       count(*) - count(dep_delay) AS cancelled,
       sum(dep_delay)              AS minutes_lost,
       avg(dep_delay)              AS avg_delay
FROM flights
GROUP BY carrier;

-- A join of three: each flight with its airline and its plane.
CREATE MATERIALIZED VIEW flights_enriched AS
SELECT f.scheduled, f.flight, f.origin, f.dest, f.dep_delay,
       a.name AS airline, p.manufacturer, p.model, p.seats
FROM flights f
JOIN airlines a ON a.carrier = f.carrier
JOIN planes   p ON p.tailnum = f.tailnum;

-- A view over a view: both are always of the same epoch.
CREATE MATERIALIZED VIEW delay_by_airline_and_maker AS
SELECT airline, manufacturer,
       count(*)       AS flights,
       sum(seats)     AS seats,
       avg(dep_delay) AS avg_delay
FROM flights_enriched
GROUP BY airline, manufacturer;

-- Windows of three hours, one each hour, by the time that was scheduled.
CREATE MATERIALIZED VIEW departures AS
SELECT origin,
       window.start                                AS from_time,
       count(dep_delay)                            AS departed,
       count(*) FILTER (WHERE dep_delay IS NULL)   AS cancelled,
       count(*) FILTER (WHERE dep_delay >= 60)     AS an_hour_late
FROM flights
GROUP BY origin, window(scheduled, '3 hours', '1 hour');

-- Rows come and go: an average crosses the threshold in both directions.
CREATE MATERIALIZED VIEW slow_routes AS
SELECT f.origin, a.name AS destination,
       count(f.dep_delay) AS departed,
       avg(f.dep_delay)   AS avg_delay
FROM flights f
JOIN airports a ON a.faa = f.dest
GROUP BY f.origin, a.name
HAVING count(f.dep_delay) >= 50 AND avg(f.dep_delay) > 25;

CREATE MATERIALIZED VIEW delay_by_weather AS
SELECT CASE WHEN w.wind_speed >= 200 THEN 'beyond any hurricane'
            WHEN w.visib      <  1   THEN 'fog'
            WHEN w.precip     >  0   THEN 'rain or snow'
            WHEN w.wind_speed >= 20  THEN 'wind'
            ELSE                          'fair' END AS conditions,
       count(*)                      AS flights,
       count(*) - count(f.dep_delay) AS cancelled,
       avg(f.dep_delay)              AS avg_delay
FROM flights f
JOIN weather w ON w.origin = f.origin AND w.time_hour = date_trunc('HOUR', f.scheduled)
GROUP BY 1;
