-- Products of manufacturers that also make some alternatives.
-- adapted: colours, units and sizes of this data.
SELECT DISTINCT i_product_name
FROM item i1
WHERE
  i_manufact_id BETWEEN 2 AND 2 + 40
  AND (
    SELECT count(*) AS item_cnt
    FROM item
    WHERE
      (
        i_manufact = i1.i_manufact
        AND (
          (
            i_category = 'Women'
            AND (i_color = 'powder' OR i_color = 'khaki')
            AND (i_units = 'Ounce' OR i_units = 'Oz')
            AND (i_size = 'medium' OR i_size = 'extra large')
          )
          OR (
            i_category = 'Women'
            AND (i_color = 'pale' OR i_color = 'chiffon')
            AND (i_units = 'Bunch' OR i_units = 'Ton')
            AND (i_size = 'N/A' OR i_size = 'small')
          )
          OR (
            i_category = 'Sports'
            AND (i_color = 'khaki' OR i_color = 'pale')
            AND (i_units = 'Bunch' OR i_units = 'Oz')
            AND (i_size = 'petite' OR i_size = 'large')
          )
        )
      )
      OR (
        i_manufact = i1.i_manufact
        AND (
          (
            i_category = 'Books'
            AND (i_color = 'powder' OR i_color = 'peach')
            AND (i_units = 'Ounce' OR i_units = 'Ton')
            AND (i_size = 'medium' OR i_size = 'large')
          )
          OR (
            i_category = 'Home'
            AND (i_color = 'saddle' OR i_color = 'pale')
            AND (i_units = 'Oz' OR i_units = 'Ton')
            AND (i_size = 'N/A' OR i_size = 'small')
          )
        )
      )
  ) > 0
ORDER BY i_product_name
LIMIT 100
