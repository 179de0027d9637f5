-- Sales of each half hour of a morning.
SELECT *
FROM
  (
    SELECT count(*) AS h8_30
    FROM store_sales, household_demographics, time_dim, store
    WHERE
      ss_sold_time_sk = time_dim.t_time_sk
      AND ss_hdemo_sk = household_demographics.hd_demo_sk
      AND ss_store_sk = s_store_sk
      AND time_dim.t_hour = 8
      AND time_dim.t_minute >= 30
      AND (
        (hd_dep_count = 4 AND hd_vehicle_count <= 4 + 2)
        OR (hd_dep_count = 2 AND hd_vehicle_count <= 2 + 2)
        OR (hd_dep_count = 0 AND hd_vehicle_count <= 0 + 2)
      )
      AND store.s_store_name = 'ese'
  ) s1,
  (
    SELECT count(*) AS h9_00
    FROM store_sales, household_demographics, time_dim, store
    WHERE
      ss_sold_time_sk = time_dim.t_time_sk
      AND ss_hdemo_sk = household_demographics.hd_demo_sk
      AND ss_store_sk = s_store_sk
      AND time_dim.t_hour = 9
      AND time_dim.t_minute < 30
      AND (
        (hd_dep_count = 4 AND hd_vehicle_count <= 4 + 2)
        OR (hd_dep_count = 2 AND hd_vehicle_count <= 2 + 2)
        OR (hd_dep_count = 0 AND hd_vehicle_count <= 0 + 2)
      )
      AND store.s_store_name = 'ese'
  ) s2,
  (
    SELECT count(*) AS h9_30
    FROM store_sales, household_demographics, time_dim, store
    WHERE
      ss_sold_time_sk = time_dim.t_time_sk
      AND ss_hdemo_sk = household_demographics.hd_demo_sk
      AND ss_store_sk = s_store_sk
      AND time_dim.t_hour = 9
      AND time_dim.t_minute >= 30
      AND (
        (hd_dep_count = 4 AND hd_vehicle_count <= 4 + 2)
        OR (hd_dep_count = 2 AND hd_vehicle_count <= 2 + 2)
        OR (hd_dep_count = 0 AND hd_vehicle_count <= 0 + 2)
      )
      AND store.s_store_name = 'ese'
  ) s3,
  (
    SELECT count(*) AS h10_00
    FROM store_sales, household_demographics, time_dim, store
    WHERE
      ss_sold_time_sk = time_dim.t_time_sk
      AND ss_hdemo_sk = household_demographics.hd_demo_sk
      AND ss_store_sk = s_store_sk
      AND time_dim.t_hour = 10
      AND time_dim.t_minute < 30
      AND (
        (hd_dep_count = 4 AND hd_vehicle_count <= 4 + 2)
        OR (hd_dep_count = 2 AND hd_vehicle_count <= 2 + 2)
        OR (hd_dep_count = 0 AND hd_vehicle_count <= 0 + 2)
      )
      AND store.s_store_name = 'ese'
  ) s4,
  (
    SELECT count(*) AS h10_30
    FROM store_sales, household_demographics, time_dim, store
    WHERE
      ss_sold_time_sk = time_dim.t_time_sk
      AND ss_hdemo_sk = household_demographics.hd_demo_sk
      AND ss_store_sk = s_store_sk
      AND time_dim.t_hour = 10
      AND time_dim.t_minute >= 30
      AND (
        (hd_dep_count = 4 AND hd_vehicle_count <= 4 + 2)
        OR (hd_dep_count = 2 AND hd_vehicle_count <= 2 + 2)
        OR (hd_dep_count = 0 AND hd_vehicle_count <= 0 + 2)
      )
      AND store.s_store_name = 'ese'
  ) s5,
  (
    SELECT count(*) AS h11_00
    FROM store_sales, household_demographics, time_dim, store
    WHERE
      ss_sold_time_sk = time_dim.t_time_sk
      AND ss_hdemo_sk = household_demographics.hd_demo_sk
      AND ss_store_sk = s_store_sk
      AND time_dim.t_hour = 11
      AND time_dim.t_minute < 30
      AND (
        (hd_dep_count = 4 AND hd_vehicle_count <= 4 + 2)
        OR (hd_dep_count = 2 AND hd_vehicle_count <= 2 + 2)
        OR (hd_dep_count = 0 AND hd_vehicle_count <= 0 + 2)
      )
      AND store.s_store_name = 'ese'
  ) s6,
  (
    SELECT count(*) AS h11_30
    FROM store_sales, household_demographics, time_dim, store
    WHERE
      ss_sold_time_sk = time_dim.t_time_sk
      AND ss_hdemo_sk = household_demographics.hd_demo_sk
      AND ss_store_sk = s_store_sk
      AND time_dim.t_hour = 11
      AND time_dim.t_minute >= 30
      AND (
        (hd_dep_count = 4 AND hd_vehicle_count <= 4 + 2)
        OR (hd_dep_count = 2 AND hd_vehicle_count <= 2 + 2)
        OR (hd_dep_count = 0 AND hd_vehicle_count <= 0 + 2)
      )
      AND store.s_store_name = 'ese'
  ) s7,
  (
    SELECT count(*) AS h12_00
    FROM store_sales, household_demographics, time_dim, store
    WHERE
      ss_sold_time_sk = time_dim.t_time_sk
      AND ss_hdemo_sk = household_demographics.hd_demo_sk
      AND ss_store_sk = s_store_sk
      AND time_dim.t_hour = 12
      AND time_dim.t_minute < 30
      AND (
        (hd_dep_count = 4 AND hd_vehicle_count <= 4 + 2)
        OR (hd_dep_count = 2 AND hd_vehicle_count <= 2 + 2)
        OR (hd_dep_count = 0 AND hd_vehicle_count <= 0 + 2)
      )
      AND store.s_store_name = 'ese'
  ) s8
