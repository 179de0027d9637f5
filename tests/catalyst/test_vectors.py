"""Expressions over Arrow columns, beside Spark's own evaluation of them.

Each expression is evaluated for every row: its value is Spark's, or it is in doubt, as it must be
where Spark fails.
"""

from __future__ import annotations

import re
from decimal import Decimal
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql.types import DecimalType, StructType

from headrace.planning.catalyst.scala import EXPRESSIONS, items, kind_of, node_name, within
from headrace.planning.catalyst.vectors import KNOWN, UnprovedError
from headrace.planning.catalyst.vectors.vector import HIGHEST
from headrace.types import to_arrow
from length import choose
from vectors_bench import Bench, doubts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession


TYPES = {
    "tiny": "TINYINT",
    "small": "SMALLINT",
    "n": "INT",
    "m": "INT",
    "big": "BIGINT",
    "huge": "BIGINT",
    "flag": "BOOLEAN",
    "other": "BOOLEAN",
    "f": "FLOAT",
    "d": "DOUBLE",
    "e": "DOUBLE",
    "text": "STRING",
    "word": "STRING",
    "raw": "BINARY",
    "price": "DECIMAL(12,2)",
    "rate": "DECIMAL(9,4)",
    "wide": "DECIMAL(38,2)",
    "count": "DECIMAL(20,0)",
    "day": "DATE",
    "until": "DATE",
    "at": "TIMESTAMP",
    "later": "TIMESTAMP",
    "local": "TIMESTAMP_NTZ",
    "clock": "TIME(6)",
    "span": "INTERVAL DAY TO SECOND",
    "pair": "STRUCT<a: INT, b: STRING>",
    "list": "ARRAY<BIGINT>",
    "words": "ARRAY<STRING>",
    "pairs": "ARRAY<STRUCT<a: DOUBLE, b: DECIMAL(30,1)>>",
    "sizes": "MAP<STRING, INT>",
    "names": "MAP<BIGINT, STRING>",
}
TEXTS = (
    "",
    " ",
    "a",
    "Ab",
    "ß",
    "İstanbul",
    "日本語",
    "\U0001f600x",
    "a%b_c",
    "x\ny",
    "\uffff",
    "zz" * 40,
)
_MICROS = (0, -1, 1, 1_709_164_800_123_456, -62_135_596_800_000_000, 253_402_300_799_999_999)
_FAR_MICROS = (-(2**63), 2**63 - 1, -62_135_596_800_000_001, 253_402_300_800_000_000)
_DAYS = (0, -1, 59, 60, 19_782, 19_783, 11_016, -25_508, -719_162, 2_932_896)
_FAR_DAYS = (-(2**31), 2**31 - 1, -719_163, 2_932_897, 106_751_991, 106_751_992)
_FLOATS = (0.0, 1.5, -2.25, 3.0, 1e10, -7.0, 0.1)
_FAR_FLOATS = (-0.0, float("nan"), float("inf"), float("-inf"), 1e308, 5e-324, 2.0**63, 2.0**31)

NEVER_IN_DOUBT = """
n = m | n < big | tiny >= small | text <= word | raw > raw | price <> wide | flag > other | d < e
d = e | f >= f | day < until | at <= later | local > local | clock <> clock | text <=> word | d <=> e
n IS NULL | pair IS NOT NULL | list IS NULL | sizes IS NULL | names IS NOT NULL | sizes['a'] | sizes[''] + 1L
names[1L] | names[0] IS NULL | IF(flag, sizes['日本語'], n) | CAST(NULL AS MAP<STRING, INT>) | flag AND other | flag OR other | NOT flag
n IN (1, 2, -3) | text IN ('a', '', NULL) | n NOT IN (0, 1) | day IN (DATE'1970-01-01', DATE'2024-02-29')
big IN (0,1,2,3,4,5,6,7,8,9,10,11,12) | price IN (0, 1.5) | at = TIMESTAMP'2024-02-29 00:00:00.123456'
IF(flag, text, word) | IF(flag, pair, NULL) | coalesce(text, word, 'none') | coalesce(n, m, 0)
CASE WHEN flag THEN n WHEN other THEN m END | CASE WHEN n > 0 THEN 'more' ELSE text END
CASE WHEN m <> 0 THEN e / m ELSE -1D END | m <> 0 AND n % m = 1 | m = 0 OR n % m < 2
CAST(tiny AS BIGINT) | CAST(n AS DOUBLE) | CAST(huge AS FLOAT) | CAST(huge AS DOUBLE) | CAST(n AS STRING)
CAST(flag AS STRING) | CAST(flag AS INT) | CAST(price AS DECIMAL(14,4)) | CAST(n AS DECIMAL(20,3))
CAST(huge AS DECIMAL(20,0)) | CAST(price AS DOUBLE) | CAST(at AS DATE) | CAST(local AS DATE)
CAST(at AS TIMESTAMP_NTZ) | CAST(local AS TIMESTAMP)
price + rate | price - 1.5 | 1 - rate | price * rate | price * 3 | price + wide * 0
tiny & small | n|m | big ^ huge | ~n | shiftright(big, 32) | shiftleft(n, 3) | shiftright(n, 31)
greatest(n, m) | least(day, until) | greatest(text, word) | least(price, rate)
text LIKE 'a%_c' | text LIKE '%b\\n%' | word LIKE '_' | text LIKE 'x_y' | startswith(text, 'a') | endswith(text, 'b')
contains(text, '本') | substring(text, 2, 3) | substring(text, 0, 2) | substring(word, 1, 0) | left(text, 2)
concat(text, '-', word) | text || CAST(n AS STRING) | replace(text, 'a', 'bb') | trim(text) | ltrim(word)
rtrim(text) | length(text) | char_length(word)
year(day) | month(day) | day(until) | quarter(day) | hour(at) | minute(at) | second(at) | hour(local)
date_trunc('HOUR', later) | date_trunc('week', later) | date_trunc('MONTH', later) | date_trunc('quarter', later)
date_trunc('YEAR', later) | date_trunc('DAY', later) | date_trunc('MILLISECOND', later)
trunc(until, 'MM') | trunc(until, 'YEAR') | trunc(until, 'week') | trunc(until, 'QUARTER')
unix_micros(at) | xxhash64(n) | xxhash64(tiny, small, n, big, flag) | xxhash64(text, word) | xxhash64(raw)
xxhash64(f, d) | xxhash64(price, wide, count) | xxhash64(day, at, local, clock) | xxhash64(pair, list)
xxhash64(pairs, text) | xxhash64(span) | span < span | least(span, span) | xxhash64(n, 'x', 5) | named_struct('x', n, 'y', text) | pair.a | pair.b
positive(n) | d + 0.5D = 2D AND false
CAST(price AS STRING) | CAST(wide AS STRING) | CAST(rate AS TINYINT) | CAST(later AS STRING) | CAST(at AS BIGINT)
CAST(at AS DOUBLE) | CAST(at AS FLOAT) | CAST(n AS TIMESTAMP) | CAST(text AS BINARY) | CAST(raw AS STRING)
CAST(n AS BOOLEAN) | CAST(d AS BOOLEAN) | CAST(f AS BOOLEAN) | dayofweek(day) | weekday(day) | dayofyear(day)
weekofyear(day) | extract(SECOND FROM at) | add_months(until, m) | until - INTERVAL 13 MONTH | until + INTERVAL 1 YEAR
later + INTERVAL 1 MONTH | last_day(until) | next_day(until, 'MON') | until - until | timestampadd(MINUTE, n, later)
timestampadd(DAY, m, later) | unix_timestamp(at) | unix_timestamp(until) | to_unix_timestamp(local) | unix_seconds(at)
unix_millis(at) | unix_date(day) | date_from_unix_date(n) | timestamp_seconds(n) | from_unixtime(m, 'yyyy-MM-dd')
date_format(later, 'yyyyMMdd') | date_format(later, "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'") | date_format(later, 'yyyyMM')
date_format(later, 'HHmmss.SSSSSS') | date_format(later, 'EEEE, dd MMM yyyy hh:mm a') | date_format(later, 'E MMMM')
date_format(until, 'yyyy-MM') | floor(e) | ceil(e) | ceil(price) | floor(price) | floor(price / 3) | ceil(n) | sign(d)
signum(price) | abs(d) | abs(f) | isnan(d) | isnan(f) | nanvl(d, e) | greatest(d, e) | least(d, e, 0)
greatest(d, CAST(NULL AS DOUBLE), -0.0D, e) | greatest(f, f, CAST(NULL AS FLOAT)) | big div 10 | tiny div 3 | d IN (1, 2)
d IN (e, 1) | d IN (0.0D, NULL, CAST('NaN' AS DOUBLE)) | text IN (word, 'a') | text NOT IN (word, 'a', NULL) | n IN (m, tiny)
f IN (1.5)
size(list) | cardinality(words) | array_size(pairs) | array(n, m) | array('a', text, word) | array(list, array(big))
array(d, 1.5D) | get(list, n) | get(words, 1) | try_element_at(words, -1) | array_contains(list, 1) | array_contains(list, big)
array_contains(words, text) | array_position(list, 2) | array_position(words, 'a') | sort_array(list) | sort_array(words, false)
array_distinct(list) | array_distinct(words) | array_max(list) | array_min(words) | array_max(array(n, m, 5))
array_join(words, '-') | concat_ws('+', words) | concat_ws(text, word, 'x') | slice(list, 1, 2) | slice(list, -2, 1)
slice(words, 2, 9) | slice(words, -9, 3) | reverse(list) | reverse(words) | transform(pairs, p -> p.a)
filter(list, x -> x > 1) | exists(list, x -> x > 1) | exists(words, w -> w = 'a') | filter(words, w -> w IS NOT NULL)
transform(words, w -> length(w)) | length(raw) | octet_length(raw) | named_struct('a', array(n, m)).a[1]
md5(text) | md5(raw) | sha1(text) | sha2(text, 256) | sha2(raw, 512) | sha2(text, 0) | crc32(text) | hex(text) | hex(raw)
round(e) | round(e / 3, 3) | split(text, ',') | split_part(text, 'a', 2) | text RLIKE 'a|b' | regexp_extract(text, '(a)', 1)
regexp_replace(text, 'z+', 'z') | substring_index(text, 'b', 1) | instr(text, 'b') | locate('c', text) | lpad(word, 3, '*')
rpad(text, 3, '*') | reverse(text) | repeat(word, 2) | translate(text, 'ab', 'c') | bit_length(text)
substring(word, n, 2) | substring(text, 2, m)
"""
SOMETIMES_IN_DOUBT = """
n + m | big - huge | tiny * tiny | small + 1S | -n | -big | abs(big) | abs(count) | -price | -d | n % m | pmod(n, m) | pmod(big, 7)
d + e | d - e | d * e | d / e | f + f | d / 2 | CAST(big AS INT) | CAST(n AS TINYINT) | CAST(d AS INT)
CAST(f AS BIGINT) | CAST(d AS SMALLINT) | CAST(huge AS DECIMAL(12,2)) | CAST(wide AS DECIMAL(20,2))
CAST(wide AS DECIMAL(38,4)) | CAST(f AS DOUBLE) | CAST(d AS FLOAT) | CAST(wide AS DOUBLE) | CAST(day AS TIMESTAMP)
CAST(day AS STRING) | CAST(day AS TIMESTAMP_NTZ) | wide * count | wide + price | wide - wide | count * count
count * 100 | price / rate | price / 3 | wide / count | 1 / price | count / rate | wide / 7
price * CAST(rate AS DECIMAL(38,8)) | CAST(price AS DECIMAL(12,1)) | CAST(rate AS DECIMAL(3,1)) | round(rate, 2)
round(wide, 1) | round(price, 0) | round(price, 5) | CAST(wide AS DECIMAL(20,1)) | CAST(n AS DECIMAL(38,25))
CAST(rate AS DECIMAL(38,30)) | CAST(m AS DECIMAL(30,20)) + rate | upper(text) | lower(word) | date_add(day, n) | date_sub(day, 7) | date_add(until, 30)
datediff(day, until) | date_format(at, 'yyyy-MM-dd') | date_format(at, 'HH:mm:ss') | date_format(local, 'yyyy')
at + INTERVAL '2' HOUR | at + INTERVAL 3 DAYS | later - INTERVAL '5' MINUTE | timestamp_micros(big)
date_trunc('YEAR', at) | date_trunc('WEEK', at) | date_trunc('quarter', local) | trunc(day, 'YEAR') | date_trunc('HOUR', at)
CASE WHEN big > 0 THEN big + 1 ELSE n * 2 END | coalesce(n + m, 0) | flag AND n + m > 0
CAST(CAST(rate AS DECIMAL(38,20)) AS STRING) | CAST(price AS INT) | CAST(wide AS BIGINT) | CAST(count AS BIGINT)
CAST(at AS STRING) | CAST(local AS STRING) | CAST(later AS INT) | CAST(big AS TIMESTAMP) | CAST(d AS DECIMAL(12,2))
CAST(e AS DECIMAL(12,2)) | CAST(e AS DECIMAL(5,0)) | CAST(d / 7 AS DECIMAL(38,10)) | add_months(day, 1)
add_months(until, n) | day + INTERVAL 1 MONTH | at - INTERVAL 1 YEAR | last_day(day) | next_day(day, 'sunday')
at - later | later - at | day - until | timestampdiff(SECOND, at, later) | timestampdiff(DAY, later, at)
timestampdiff(WEEK, later, at) | timestampdiff(HOUR, later, local) | timestampdiff(MICROSECOND, later, at)
timestampadd(HOUR, 1, at) | timestampadd(WEEK, m, local) | unix_timestamp(day) | from_unixtime(big) | timestamp_seconds(big)
from_unixtime(big, 'yyyyMMdd HH') | timestamp_millis(big) | round(d, 2) | round(e) | round(d / 3, 4) | ceil(d) | floor(d)
ceil(f) | floor(wide) | ceil(wide) | sqrt(abs(d)) | sqrt(d) | nanvl(f, 1) | least(f, 1.5) | n div m | huge div big | d % e | d % 3
list[0] | list[n] | element_at(list, 1) | element_at(list, m) | try_element_at(list, m) | transform(list, x -> x + 1)
transform(words, w -> upper(w)) | pairs[0].a | CAST(d AS STRING) | CAST(e / 7 AS STRING) | get_json_object(text, '$.a')
f % 2 | wide % 10 | price % rate | count % price
"""
OF_TEXTS = """
CAST(text AS INT) | CAST(text AS BIGINT) | CAST(text AS SMALLINT) | CAST(text AS TINYINT) | CAST(text AS DOUBLE)
CAST(text AS FLOAT) | CAST(text AS DECIMAL(12,2)) | CAST(text AS DECIMAL(38,10)) | CAST(text AS DECIMAL(5,0))
CAST(text AS BOOLEAN) | CAST(text AS DATE) | CAST(text AS TIMESTAMP) | CAST(text AS TIMESTAMP_NTZ)
try_cast(text AS INT) | try_cast(text AS BIGINT) | try_cast(text AS SMALLINT) | try_cast(text AS TINYINT)
try_cast(text AS DOUBLE) | try_cast(text AS FLOAT) | try_cast(text AS DECIMAL(12,2)) | try_cast(text AS DECIMAL(38,10))
try_cast(text AS BOOLEAN) | try_cast(text AS DATE) | try_cast(text AS TIMESTAMP) | try_cast(text AS TIMESTAMP_NTZ)
CAST(text AS BINARY) | to_date(text) | to_timestamp(text) | try_to_timestamp(text) | to_date(text, 'yyyy-MM-dd')
to_date(text, 'dd/MM/yyyy') | to_date(text, 'yyyyMMdd') | to_timestamp(text, 'yyyy-MM-dd HH:mm:ss')
to_timestamp(text, "yyyy-MM-dd'T'HH:mm:ss") | to_timestamp(text, "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'") | to_date(text, 'yyyy-MM')
try_to_timestamp(text, 'yyyy-MM-dd') | try_to_timestamp(text, 'yyyy-MM-dd HH:mm:ss.SSSSSS') | unix_timestamp(text)
unix_timestamp(text, 'yyyy-MM-dd') | to_unix_timestamp(text, 'dd.MM.yyyy HH:mm') | to_timestamp_ntz(text, 'yyyy-MM-dd')
"""
"""What reads texts."""
OF_LINES = r"""
split(text, ',') ;; split(text, '\\|') ;; split(text, '[,;]') ;; split(text, '\\s+') ;; split(text, ', *') ;; split(text, ',', 2)
split(text, '[^a-z]+', 3) ;; element_at(split(text, '='), 1) ;; size(split(text, ',')) ;; split_part(text, ',', 2) ;; split_part(text, '=', -1)
element_at(split(text, '='), 1) ;; get(split(text, '/'), 2) ;; split(text, '(?:ab|a)') ;; split(text, '\\Q|\\E') ;; split(text, '.')
text RLIKE '^[a-z]+$' ;; text RLIKE 'a.b' ;; text RLIKE '(?i)error|Z' ;; text RLIKE '^\\d{1,3}$' ;; text RLIKE 'a*'
text RLIKE '\\w+@\\w+\\.com' ;; text RLIKE '[^\\s\\w]' ;; text RLIKE '^(a|ab)(b|Z)?$' ;; text RLIKE '\\S\\s' ;; text RLIKE '\\D$'
regexp_extract(text, '([a-z]+)@([a-z.]+)', 2) ;; regexp_extract(text, '(\\d+)-(\\d+)', 1) ;; regexp_extract(text, 'a+?(b)?', 0)
regexp_extract(text, '(a|ab)(Z|b)?', 2) ;; regexp_extract(text, '(?:^|,)([^,]*)', 1) ;; regexp_extract(text, '(.*)=(.*)', 1)
regexp_extract(text, '^(?:a|b)*', 0) ;; regexp_extract(text, '(?i)(err)or$', 1) ;; regexp_extract(text, '.+', 0) ;; regexp_extract(text, '([^/]*)$', 1)
regexp_replace(text, '[^0-9]', '') ;; regexp_replace(text, '\\s+', ' ') ;; regexp_replace(text, 'a(b)?', '<$0>') ;; regexp_replace(text, '^a', '-')
regexp_replace(text, 'b$', '') ;; regexp_replace(text, '^[ab]+', 'x') ;; regexp_replace(text, '(?:aa|a)', '1') ;; regexp_replace(text, '.', 'x')
substring_index(text, ',', 1) ;; substring_index(text, ',', -1) ;; substring_index(text, ',', 2) ;; substring_index(text, '=', -2)
instr(text, 'b') ;; instr(text, ',,') ;; locate('a', text) ;; position('=' IN text) ;; instr(text, 'Z')
concat_ws(',', text, nullif(text, 'a'), 'x', text) ;; concat_ws('-', split(text, ',')) ;; array_join(split(text, '='), '+') ;; lpad(text, 5, '0')
rpad(text, 4, 'xy') ;; lpad(text, 3, 'abc') ;; rpad(text, 0, ' ') ;; reverse(text) ;; repeat(text, 2) ;; repeat(text, -1)
translate(text, 'ab,', 'xy') ;; translate(text, 'aa', 'bc') ;; translate(text, '=', '') ;; trim(BOTH 'ab' FROM text) ;; ltrim('0', text)
trim(TRAILING ' ,' FROM text) ;; octet_length(text) ;; bit_length(text) ;; substring(text, -2) ;; substring(text, -3, 2) ;; substring(text, -3, 0)
substring(text, 2) ;; right(text, 2) ;; substring(text, length(text) - 1) ;; substring(text, 2, length(text) - 2) ;; left(text, instr(text, '='))
substring(text, -9, 3) ;; substring(text, -length(text), 1) ;; array_distinct(split(text, ',')) ;; sort_array(split(text, ','), false)
transform(split(text, ','), x -> trim(x)) ;; filter(split(text, ','), x -> x <> '') ;; exists(split(text, ','), x -> x = 'a')
"""
"""What takes texts apart."""
OF_DOCUMENTS = """
get_json_object(text, '$.a') | get_json_object(text, '$.b') | get_json_object(text, '$.a.b') | get_json_object(text, '$.a[0]')
get_json_object(text, '$.a[1].b') | get_json_object(text, '$[0]') | get_json_object(text, '$.a.a.a') | get_json_object(text, '$.A')
try_cast(get_json_object(text, '$.a') AS DOUBLE) | coalesce(get_json_object(text, '$.c'), get_json_object(text, '$.a'), '-')
"""
"""What reads JSON."""
DOCUMENTS = """
{"a":1,"b":"x"}
{"a" : {"b" : [1, 2.50, {"c":null}]}, "b":true}
{"a":null,"a":2}
{"a":1,"a":2}
{"a":{"b":null},"a":{"b":3}}
{"a":{"c":1},"a":{"b":3}}
{"a":{"b":null,"b":"last"}}
{"a":[null,1]}
{"a":[[1,2],[3]]}
{"a":"x"} trailing
{"a":"x"}{"a":"y"}
{"a":"x"
{'a':'x'}
{"a":x}
{"a":NaN}
{"a":Infinity}
{"a":01}
{"a":+1}
{"a":.5}
{"a":1.}
{"a":"tab\there"}
{"a":"line
[{"a":1}]
"a"
1
null
abc
{"a":1,}
{,"a":1}
{"a" 1}
{a:1}
{"b":"\\x","a":1}
{"a":{"b":1}}}
"""
READ_AS_TEXT = {"GetTimestamp", "ToUnixTimestamp", "UnixTimestamp"}
"""The classes of expressions that read texts."""
READ = """
0|1|-1|+7|007|127|128|-128|-129|32767|32768|-32769|2147483647|2147483648|-2147483649|9223372036854775807
9223372036854775808|-9223372036854775808|-9223372036854775809|000000000000000000000000000012|1.5|-2.50|.5|5.|.|-.5
+.25|1e3|1E-3|1e+5|1.5e300|1e400|-1e400|1e-400|4.9e-324|123456789012345678901234567890|0.1|0.2|1e|e5|1e1.5|--1|+-1|+|-
1,000|1_000|0x1F|0x1p3|1f|1d|1D|1.0F|NaN|nan|Infinity|-Infinity|+Infinity|inf|-inf|INF|infinity|NAN|nano|12a|a12
12 34|\u0661\u0662\u0663|\uff11\uff12|\u00b2|\u00bd|\u22125|1.005|2.675|999.995|9999999999.994|9999999999.995|0.0000000001|0.00000000005|-0|-0.0|-0.004|t
true|TRUE|True|y|Yes|yes|1|f|false|FALSE|n|No|no|0|tr|yess|on|off|\uff54|K|ye\u017f|2024-02-29|2023-02-29|2024-2-9|2024-02-30
2024-13-01|2024-00-10|2024-01-00|2024-1-1|2024-01|2024|20240229|+2024-01-01|-2024-01-01|0000-01-01|0001-01-01|9999-12-31
10000-01-01|1582-10-04|1582-10-10|1582-10-15|1900-02-29|2000-02-29|24-01-01|2024/01/01|01/02/2024|29/02/2024|31.12.1999 23:59
2024-02-29 12:34:56|2024-02-29T12:34:56|2024-02-29T12:34:56Z|2024-02-29T12:34:56.123Z|2024-02-29 12:34:56.123456
2024-02-29 12:34:56.1234567|2024-02-29 12:34:56.123456789|2024-02-29 12:34:56.1234567890|2024-02-29 12:34:56.|2024-02-29 12:34
2024-02-29 1:2:3|2024-02-29 24:00:00|2024-02-29 23:60:00|2024-02-29 23:59:60|2024-02-29 12:34:56+01:00
2024-02-29T12:34:56-08:30|2024-02-29T12:34:56+18:00|2024-02-29T12:34:56+18:01|2024-02-29T12:34:56+19:00|2024-02-29T12:34:56+01:60
2024-02-29 12:34:56 UTC|2024-02-29 12:34:56 Europe/Berlin|2024-02-29 12:34:56+1:00|2024-02-29 12:34:56+0100|2024-02-29 12:34:56z
2024-02-29x|2024-02-29 |2024-02-29 x|2024-02-29T|T12:00:00|12:00:00|12:00|epoch|now|today|yesterday|1970-01-01|1969-12-31 23:59:59.999999
0001-01-01 00:00:00|9999-12-31 23:59:59.999999|294247-01-10 04:00:54.775807|2024-02-29 12:34:56.5|\u0662\u0660\u0662\u0664-01-01|2024\u221202\u221229|2024-02-2\uff19
"""
CAST = "tiny | n | big | flag | f | d | text | raw | price | wide | day | at | local | clock | span | list | pair"
"""A column of each type."""
TARGETS = """
BOOLEAN | TINYINT | INT | BIGINT | FLOAT | DOUBLE | DECIMAL(5,1) | DECIMAL(12,2) | DECIMAL(38,10) | STRING
BINARY | DATE | TIMESTAMP | TIMESTAMP_NTZ | TIME(0) | TIME(1) | TIME(6) | ARRAY<INT> | ARRAY<BIGINT> | INTERVAL DAY
INTERVAL HOUR TO MINUTE | INTERVAL DAY TO SECOND | CHAR(2) | STRUCT<a: BIGINT, b: STRING> | VARCHAR(3)
STRING COLLATE UTF8_LCASE
"""
OF_PLANS = {
    "Alias",
    "CheckOverflow",
    "CheckOverflowInSum",
    "DecimalDivideWithOverflowCheck",
    "KnownFloatingPointNormalized",
    "MakeDecimal",
    "KnownNotNull",
    "KnownNullable",
    "NormalizeNaNAndZero",
    "PreciseTimestampConversion",
    "UnscaledValue",
}
"""The classes of expressions that queries do not name; plans contain them."""
STRICT = (False,)
"""An overflow is an error, not NULL."""
CROSSING = {
    "split(text, '')": "StringSplit",
    "split(text, word)": "StringSplit",
    "split(text, '(?=a)')": "StringSplit",
    "split(text, 'a*')": "StringSplit",
    "split(text, '^a')": "StringSplit",
    "text RLIKE '\\\\bx'": "RLike",
    "text RLIKE 'a++'": "RLike",
    "text RLIKE '(a)+'": "RLike",
    "text RLIKE '(?:a*)*'": "RLike",
    "text RLIKE '[a&&b]'": "RLike",
    "text RLIKE '(?i)[a-Z]'": "RLike",
    "text RLIKE '\u00e9'": "RLike",
    "text RLIKE '\\\\p{L}'": "RLike",
    "text RLIKE '$a'": "RLike",
    "text RLIKE '(a$)'": "RLike",
    "text RLIKE 'a{1000}'": "RLike",
    "text RLIKE '(?:a{900}){900}'": "RLike",
    "text RLIKE word": "RLike",
    "regexp_replace(text, 'a*', 'b')": "RegExpReplace",
    "regexp_replace(text, '(a)', '$1')": "RegExpReplace",
    "regexp_replace(text, 'a', '\\\\\\\\')": "RegExpReplace",
    "substring_index(text, 'ab', 1)": "SubstringIndex",
    "translate(text, '\u00e9', 'e')": "StringTranslate",
    "get_json_object(text, '$.*')": "GetJsonObject",
    "get_json_object(text, '$')": "GetJsonObject",
    "sort_array(array(d, e))": "CreateArray of type array<double>",
    "transform(list, x -> x + big)": "a column of another node",
    "transform(list, (x, i) -> x + i)": "transform",
    "text COLLATE UTF8_LCASE = 'a'": "Collate of type string collate UTF8_LCASE",
    "price + CAST(count AS DECIMAL(38,18))": "Add of type decimal(38,17)",
    "round(f, 2)": "Round of type float",
    "list = list": "EqualTo of type array<bigint>",
    "names[big]": "GetMapValue of type bigint",
    "CAST(f AS STRING)": "Cast of float to string",
    "map(1, n)": "CreateMap",
    "text LIKE word": "Like",
    "text LIKE 'a\\\\%'": "Like",
    "date_format(at, 'yyyyyyyy')": "DateFormatClass",
    "date_format(at, 'ss ss.SSS')": "DateFormatClass",
    "to_date(text, 'yy-MM-dd')": "GetTimestamp",
    "to_date(text, 'yyyy-yyyy')": "GetTimestamp",
}
"""Expressions that only Spark evaluates, with the reason."""


def listed(texts: str) -> list[str]:
    return [each.strip() for line in texts.strip().split("\n") for each in line.split(" | ")]


def drawn(random: Random, name: str, type_: str) -> Any:
    """Return a value of a column as Catalyst represents it, or as PyArrow takes it."""
    if random.random() < 0.15:
        return None
    k, far = random.randrange(-3, 4), random.random() < 0.3
    plain = name in ("until", "later", "m", "small", "rate", "e")
    if type_.startswith("DECIMAL"):
        digits, scale = map(int, type_[8:-1].split(","))
        edge = random.choice([10**digits - 1, 1 - 10**digits, 2**63, 10 ** (digits // 2)])
        whole = edge if far and not plain and abs(edge) < 10**digits else k * 25
        return Decimal(f"{whole}E{-scale}")  # exact, whatever the context
    match type_:
        case "STRING":
            return random.choice(TEXTS)
        case "BINARY":
            return random.choice(TEXTS).encode()
        case "BOOLEAN":
            return k > 0
        case "FLOAT" | "DOUBLE":
            return random.choice(_FAR_FLOATS if far and not plain else _FLOATS)
        case "DATE":
            return random.choice(_FAR_DAYS if far and not plain else _DAYS)
        case "TIMESTAMP" | "TIMESTAMP_NTZ" | "INTERVAL DAY TO SECOND":
            return random.choice(_FAR_MICROS if far and not plain else _MICROS)
        case "TIME(6)":
            return random.choice([0, 86_399_999_999_000, 43_200_000_000_000])
        case "STRUCT<a: INT, b: STRING>":
            return {"a": None if far else k, "b": random.choice(TEXTS)}
        case "ARRAY<BIGINT>" | "ARRAY<STRING>":
            some = TEXTS[:7] if name == "words" else (0, 1, 2, -(2**63), 2**63 - 1)
            return random.choices([*some, None] if far else some, k=k + 3)
        case "ARRAY<STRUCT<a: DOUBLE, b: DECIMAL(30,1)>>":
            part = {"a": random.choice(_FAR_FLOATS), "b": Decimal(k * 10**20)}
            return [None if far else part, part][: abs(k)]
        case "MAP<STRING, INT>" | "MAP<BIGINT, STRING>":
            texts = list(dict.fromkeys(random.choices(TEXTS, k=4)))
            values = [None if far else k] * len(texts)
            of_texts = zip(texts, values, strict=True)
            return [*of_texts] if type_ == "MAP<STRING, INT>" else [*enumerate(texts, -1)]
        case _:
            bits = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64}[type_]
            edge = random.choice([-(2 ** (bits - 1)), 2 ** (bits - 1) - 1])
            return edge if far and not plain else k


def table(random: Random, schema: StructType, rows: int) -> pa.Table:
    columns = []
    for field, type_ in zip(schema, TYPES.values(), strict=True):
        kind = to_arrow(field.dataType)
        given = [drawn(random, field.name, type_) for _ in range(rows)]
        if pa.types.is_temporal(kind):
            number = pa.int32() if pa.types.is_date32(kind) else pa.int64()
            columns.append(pa.array(given, number).view(kind))
        else:
            columns.append(pa.array(given, kind))
    return pa.table(columns, names=schema.names)


@pytest.fixture(scope="module")
def bench(spark: SparkSession) -> Bench:
    columns = ", ".join(f"{n} {t}" for n, t in TYPES.items())
    rows = table(Random(5), StructType.fromDDL(columns), choose(40, 120))
    return Bench.of(spark, rows, columns)


def of_texts(spark: SparkSession, given: Sequence[str | None]) -> Bench:
    """Return rows of texts."""
    rows = pa.table([pa.array(given, pa.string())], names=["text"])
    return Bench.of(spark, rows, "text STRING")


@pytest.fixture(scope="module")
def documents(spark: SparkSession) -> Bench:
    """Rows of JSON, and of what is nearly JSON."""
    random, known = Random(choose(3, 4)), DOCUMENTS.strip().split("\n")
    made = (document(random, 3) for _ in range(choose(150, 1_500)))
    broken = (changed(random, known) for _ in range(choose(50, 1_000)))
    return of_texts(spark, [None, "", " ", *known, *made, *broken])


def document(random: Random, depth: int) -> str:
    """Return a random JSON object with a few names, or another value."""
    if not depth or random.random() < 0.3:
        return random.choice(_VALUES)
    blank = random.choice(["", "", " ", "\n"])
    if random.random() < 0.2:
        inner = [document(random, depth - 1) for _ in range(random.randrange(4))]
        return f"[{blank}{','.join(inner)}{blank}]"
    names = random.choices(["a", "b", "c", "A", "a b", "\u00e9", "\\u0061"], k=random.randrange(4))
    inner = [f'"{name}"{blank}:{blank}{document(random, depth - 1)}' for name in names]
    return "{" + f",{blank}".join(inner) + "}"


@pytest.fixture(scope="module")
def lines(spark: SparkSession) -> Bench:
    """Rows of texts with separators, words and ends of lines."""
    random = Random(choose(8, 9))
    made = (
        "".join(random.choices(_PARTS, k=random.randrange(9))) for _ in range(choose(150, 1_500))
    )
    return of_texts(spark, [None, "", *made])


@pytest.fixture(scope="module")
def reading(spark: SparkSession) -> Bench:
    """Rows of texts that may be numbers, booleans, dates and times, or nearly are."""
    random, known = (
        Random(choose(6, 7)),
        [each for line in READ.split("\n") for each in line.split("|")],
    )
    given = [None, *known, *(changed(random, known) for _ in range(choose(200, 1_500)))]
    return of_texts(spark, given)


_VALUES = (
    *(
        "1",
        "-5",
        "0",
        "-0",
        "12345678901234567890123",
        "1.0",
        "1.50",
        "-0.0",
        "1e3",
        "1E-7",
        "0.001",
        "123.456",
        "1e400",
    ),
    *(
        "true",
        "false",
        "null",
        '""',
        '"x"',
        '"a\\"b"',
        '"\\u00e9\\n"',
        '"\\ud83d\\ude00"',
        '"\\ud800"',
        '"\u65e5"',
        '"/"',
        '"\\/"',
    ),
    *(
        "{}",
        "[]",
        "[null]",
        '"\u2028"',
        '"\\u0001"',
        '"\x7f"',
        "9007199254740993",
        "0.1",
        "2.5",
        "9999999.5",
        "10000000.0",
    ),
)
_PARTS = (
    *(
        "a",
        "b",
        "Z",
        "0",
        "42",
        ",",
        ",,",
        "|",
        ";",
        "=",
        " ",
        "  ",
        "\t",
        "-",
        "_",
        ".",
        "@",
        "/",
        "(",
        "+",
        "ab",
        "aab",
    ),
    *(
        "\n",
        "\r",
        "\r\n",
        "\x0b",
        "\u0085",
        "\u2028",
        "\u00e9",
        "\u00df",
        "\u65e5\u672c",
        "\U0001f600",
        "e\u0301",
    ),
    *("user@example.com", "https://a.b/c?d=1&e=2", "2024-02-29", "ERROR", "key=value"),
)
_CHARACTERS = ["", *"0123456789", *"-+.eET:Z \t\n\x00\x7f\x1c\u00a0\u0663"]


def changed(random: Random, known: Sequence[str]) -> str:
    """Return one of the texts with a few characters replaced, removed or inserted."""
    text = random.choice(known)
    for _ in range(random.randrange(1, 4)):
        at = random.randrange(len(text) + 1)
        kept = at + random.randrange(2)
        text = text[:at] + random.choice(_CHARACTERS) + text[kept:]
    return text


def test_expressions_have_the_values_of_spark_or_are_in_doubt(bench: Bench) -> None:
    sure, unsure = listed(NEVER_IN_DOUBT), listed(SOMETIMES_IN_DOUBT)
    cases, reader = bench.cases([*sure, *unsure])
    for case in cases[: len(sure)]:
        assert doubts(bench, case, reader) == 0, case.text
    for case in cases[len(sure) :]:
        assert doubts(bench, case, reader) < bench.rows.num_rows * 0.8, case.text
    parts = [part for case in cases for part in within(case.handle)]
    seen = {name(part) for part in parts for name in (kind_of, node_name)}
    assert KNOWN.keys() - seen == OF_PLANS | {"GetTimestamp"}


@pytest.mark.long
def test_texts_are_taken_apart_as_spark_does(lines: Bench) -> None:
    cases, reader = lines.cases([each.strip() for each in re.split(";;|\n", OF_LINES.strip())])
    ends_lines = sum(str(each)[-1:] in "\n\r\u0085\u2028\u2029" for each in lines.rows["text"])
    for case in cases:
        most = ends_lines if "$'" in case.text or "$|" in case.text else 0
        assert doubts(lines, case, reader) <= most, case.text


def test_documents_are_read_as_spark_reads_them_or_are_in_doubt(documents: Bench) -> None:
    cases, reader = documents.cases(listed(OF_DOCUMENTS))
    for case in cases:
        assert doubts(documents, case, reader) < documents.rows.num_rows * 0.5, case.text


@pytest.mark.long
def test_texts_are_read_as_spark_reads_them_or_are_in_doubt(reading: Bench) -> None:
    cases, reader = reading.cases(listed(OF_TEXTS))
    seen = {kind_of(part) for case in cases for part in within(case.handle)}
    assert seen >= READ_AS_TEXT
    for case in cases:
        assert doubts(reading, case, reader) < reading.rows.num_rows, case.text


@pytest.mark.long
def test_each_cast_has_the_values_of_spark_or_is_in_doubt_or_left_to_it(bench: Bench) -> None:
    cast = bench.scala.module(f"{EXPRESSIONS}.Cast")
    types = StructType.fromDDL(", ".join(f"c{i} {t}" for i, t in enumerate(listed(TARGETS))))
    columns = StructType.fromDDL(
        ", ".join(f"{n} {t}" for n, t in TYPES.items() if n in listed(CAST))
    )
    given = {each.name: bench.scala.type(each.dataType.json()) for each in columns}
    targets = [bench.scala.type(each.dataType.json()) for each in types]
    texts = [
        f"CAST({name} AS {text})"
        for name, source in given.items()
        for text, target in zip(listed(TARGETS), targets, strict=True)
        if cast.canAnsiCast(source, target)
    ]
    cases, reader = bench.cases(texts)
    proved = [case for case in cases if reader.vector_of(case.handle) is not None]
    assert len(proved) > 50
    for case in proved:
        doubts(bench, case, reader)


def test_what_is_not_proved_is_left_to_spark(bench: Bench) -> None:
    cases, reader = bench.cases(list(CROSSING))
    for case in cases:
        assert reader.vector_of(case.handle) is None
        with pytest.raises(UnprovedError) as unproved:
            reader.vector(case.handle)
        assert str(unproved.value) == CROSSING[case.text], case.text


def test_an_expression_that_is_higher_than_pythons_stack_is_left_to_spark(bench: Bench) -> None:
    def nested(levels: int) -> str:
        return "".join(f"CASE WHEN n = {i} THEN {i} ELSE " for i in range(levels)) + (
            "m" + " END" * levels
        )

    (fits, high), reader = bench.cases([nested(HIGHEST - 2), nested(HIGHEST - 1)])
    assert doubts(bench, fits, reader) == 0
    assert reader.vector_of(fits.handle) is not None
    assert reader.vector_of(high.handle) is None
    assert reader.why_unproved(high.handle) == "CaseWhen"
    branches = " ".join(f"WHEN n = {i} THEN {i}" for i in range(400))
    (flat,), reader = bench.cases([f"CASE {branches} END"])
    assert reader.vector_of(flat.handle) is None


@pytest.mark.long
def test_random_expressions_have_the_values_of_spark_or_are_in_doubt(bench: Bench) -> None:
    random = Random(choose(11, 12))
    cases, reader = bench.cases([expression(random, 3) for _ in range(choose(60, 1_000))])
    proved = [case for case in cases if reader.vector_of(case.handle) is not None]
    found = [doubts(bench, case, reader) for case in proved]
    assert len(proved) > len(cases) * 0.6
    assert sum(found) < bench.rows.num_rows * len(cases) * 0.4


NUMBERS = ("tiny", "small", "n", "m", "big", "huge", "price", "rate", "5", "CAST(-1 AS BIGINT)")
CONDITIONS = ("flag", "other", "text = word", "d < e", "day <= until", "at = later", "f IS NULL")


def expression(random: Random, depth: int) -> str:
    """Return a random expression of one of several types."""
    value = random.choice([number, condition, text])(random, depth)
    return f"xxhash64({value}, {number(random, 0)})" if random.random() < 0.2 else value


def number(random: Random, depth: int) -> str:
    if not depth:
        return random.choice(NUMBERS)
    left, right = number(random, depth - 1), number(random, depth - 1)
    return random.choice(
        [
            f"({left} {random.choice('+-*')} {right})",
            f"coalesce({left}, {right})",
            f"IF({condition(random, depth - 1)}, {left}, {right})",
            f"CASE WHEN {condition(random, depth - 1)} THEN {left} END",
            f"(-{left})",
            f"CAST({left} AS {random.choice(['BIGINT', 'DECIMAL(38,8)', 'DECIMAL(20,0)', 'INT'])})",
            f"length({text(random, depth - 1)})",
            f"year(date_add(until, CAST({random.choice(NUMBERS)} AS INT)))",
        ]
    )


def condition(random: Random, depth: int) -> str:
    if not depth:
        return random.choice(CONDITIONS)
    left, right = condition(random, depth - 1), condition(random, depth - 1)
    compared = random.choice(["=", "<>", "<", "<=", ">", ">=", "<=>"])
    return random.choice(
        [
            f"({left} AND {right})",
            f"({left} OR {right})",
            f"(NOT {left})",
            f"({number(random, depth - 1)} {compared} {number(random, depth - 1)})",
            f"({text(random, depth - 1)} {compared} {text(random, depth - 1)})",
            f"({number(random, depth - 1)} IS NULL)",
            f"({random.choice(['n', 'big', 'price'])} IN (1, -2, NULL))",
            f"({text(random, depth - 1)} LIKE 'a%')",
        ]
    )


def text(random: Random, depth: int) -> str:
    if not depth:
        return random.choice(["text", "word", "'a'", "CAST(n AS STRING)"])
    left, right = text(random, depth - 1), text(random, depth - 1)
    return random.choice(
        [
            f"({left} || {right})",
            f"substring({left}, {random.randrange(4)}, {random.randrange(4)})",
            f"upper({left})",
            f"trim({left})",
            f"IF({condition(random, depth - 1)}, {left}, {right})",
            f"replace({left}, 'a', '')",
        ]
    )


def test_expressions_of_plans_have_the_values_of_spark(bench: Bench) -> None:
    scala = bench.scala
    below = bench.leaf._jdf.queryExecution().optimizedPlan()
    columns = {str(a.name()): a for a in items(below.output())}
    long, time = columns["huge"].dataType(), columns["at"].dataType()
    wide = scala.type(DecimalType(36, 2).json())
    as_number = scala.expression("PreciseTimestampConversion", columns["at"], time, long)
    message = scala.module(f"{EXPRESSIONS}.Literal").apply("too large")
    failure = scala.cast(scala.expression("RaiseError", message), long)
    plans = {
        "normalised": scala.normalised(columns["d"]),
        "as number": as_number,
        "as time": scala.expression("PreciseTimestampConversion", columns["huge"], long, time),
        "known": scala.expression("KnownNullable", as_number),
        "not null": scala.expression("KnownNotNull", columns["n"]),
        "checked": scala.expression("CheckOverflow", columns["wide"], wide, *STRICT),
        "sum": scala.expression("CheckOverflowInSum", columns["wide"], wide, *STRICT, None),
        "units": scala.expression("UnscaledValue", columns["price"]),
        "from units": scala.expression("MakeDecimal", columns["big"], 9, 2, *STRICT),
        "average": scala.expression(
            "DecimalDivideWithOverflowCheck",
            columns["price"],
            columns["rate"],
            scala.type(DecimalType(20, 7).json()),
            None,
            *STRICT,
        ),
        "failure": scala.expression("If", columns["flag"], columns["huge"], failure),
        "never": scala.expression("If", columns["flag"], columns["huge"], columns["big"]),
    }
    cases, reader = bench.evaluated(list(plans), list(plans.values()), below)
    found = {case.text: doubts(bench, case, reader) for case in cases}
    in_doubt = {name for name, count in found.items() if count}
    seen = {kind_of(part) for handle in plans.values() for part in within(handle)}
    assert OF_PLANS - seen == {"Alias"}
    assert in_doubt == {"average", "checked", "from units", "sum", "failure"}, found
