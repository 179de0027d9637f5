"""The functions of other dialects by name; those that mean something else in Spark have a star.

A name without a star that Spark has too means the same in both, up to what errors say and to the
types that literals have. Names that Spark does not have need no mark.
"""

from __future__ import annotations

NAMES = {
    "ksqlDB": """
    abs acos asin atan atan2 cbrt ceil* cos cosh cot degrees exp floor* geo_distance generate_series greatest least ln* log* pi power
    radians random round* sign* sin sinh sqrt tan tanh trunc*
    array_concat array_contains* array_distinct array_except array_intersect array_join* array_length array_max array_min array_remove*
    array_sort* array_union as_map as_value elt* field json_array_contains map_keys map_union map_values slice* entries
    filter reduce* transform*
    chr* concat* concat_ws encode* extractjsonfield from_bytes to_bytes initcap* instr is_json_string json_array_length json_concat json_items
    json_keys json_records lcase left* right* len lpad* rpad* mask* mask_keep_left mask_keep_right mask_left mask_right replace
    regexp_extract* regexp_extract_all* regexp_replace* regexp_split_to_array split* split_to_map substring* to_json_string trim* ucase uuid
    coalesce ifnull nullif
    convert_tz dateadd* datesub datetostring format_date format_time format_timestamp from_days from_unixtime* parse_date parse_time
    parse_timestamp stringtodate stringtotimestamp timeadd timesub timestampadd* timestampsub timestamptostring unix_date unix_timestamp*
    url_decode_param url_encode_param url_extract_fragment url_extract_host url_extract_parameter url_extract_path url_extract_port
    url_extract_protocol url_extract_query
    attr avg* collect_list* collect_set* correlation count* count_distinct earliest_by_offset histogram latest_by_offset max min stddev_samp*
    stddev_sample sum* sum_list topk topkdistinct explode cube_explode cast*
    """,
    "Flink": """
    power abs sqrt* ln* log10* log2* log* exp ceil* ceiling* floor* sin sinh cos tan tanh cot asin acos atan atan2 cosh degrees radians sign*
    round* pi e rand rand_integer uuid bin hex unhex truncate percentile mod
    char_length character_length upper lower position trim* ltrim* rtrim* repeat* regexp_replace* overlay substring* substr* replace
    translate regexp_extract* regexp_extract_all* regexp_count regexp_instr* regexp_substr initcap* concat concat_ws lpad* rpad* from_base64
    to_base64 ascii chr* decode* encode* instr left* right* locate parse_url regexp* reverse split_index str_to_map* startswith endswith
    btrim elt* url_encode url_decode* printf md5* sha1* sha224 sha256 sha384 sha512 sha2
    date time timestamp localtime localtimestamp current_time current_date current_timestamp now current_row_timestamp extract* year quarter
    month week dayofyear dayofmonth dayofweek* hour minute second timestampadd* timestampdiff* convert_tz from_unixtime* unix_timestamp*
    to_date* to_timestamp_ltz* to_timestamp* current_watermark date_format
    if ifnull coalesce greatest* least* nullif typeof* cast* try_cast*
    cardinality element array_append* array_contains* array_concat array_distinct array_except* array_intersect array_join* array_max
    array_min array_position* array_prepend* array_remove* array_reverse array_slice array_sort* array_union map_entries map_from_arrays
    map_keys map_union map_values split*
    json_exists json_string json_value json_query json_object json_array json_quote json_unquote json_length parse_json try_parse_json
    avg* count sum max min stddev_pop stddev_samp* var_pop var_samp variance collect rank dense_rank row_number lead lag first_value*
    last_value* listagg* array_agg* cume_dist percent_rank ntile json_arrayagg json_objectagg any_value every some any
    grouping grouping_id bitand bit_length hop tumble session cumulate unnest
    """,
    "PostgreSQL": """
    abs cbrt ceil* ceiling* degrees div* erf exp factorial* floor* gcd lcm ln* log* log10* min_scale mod pi power radians random round*
    scale sign* sqrt* trim_scale trunc* width_bucket acos asin atan atan2 cos cot sin tan sinh cosh tanh asinh acosh atanh
    ascii bit_length btrim char_length character_length chr* concat* concat_ws convert_from convert_to decode* encode* format initcap*
    left* right* length lower upper lpad* rpad* ltrim* rtrim* trim* md5* normalize octet_length overlay parse_ident position quote_ident
    quote_literal quote_nullable regexp_count regexp_instr* regexp_like* regexp_match regexp_matches regexp_replace* regexp_split_to_array
    regexp_split_to_table regexp_substr repeat* replace reverse split_part starts_with string_to_array string_to_table strpos substr*
    substring* to_ascii to_hex translate unistr sha224 sha256 sha384 sha512 get_bit set_bit get_byte set_byte bit_count crc32
    age clock_timestamp current_date current_time current_timestamp date_add* date_bin date_part* date_subtract date_trunc* extract*
    isfinite justify_days justify_hours justify_interval localtime localtimestamp make_date make_interval make_time make_timestamp
    make_timestamptz now statement_timestamp timeofday transaction_timestamp to_timestamp* to_char* to_date* to_number*
    array_append* array_cat array_dims array_fill array_length array_lower array_ndims array_position* array_positions array_prepend*
    array_remove* array_replace array_reverse array_sample array_shuffle array_sort* array_to_string array_upper cardinality trim_array
    unnest generate_series generate_subscripts row_to_json to_json* to_jsonb array_to_json json_build_array json_build_object json_object
    json_array_elements json_array_length json_each json_extract_path json_object_keys* json_populate_record json_typeof jsonb_set
    jsonb_pretty json_strip_nulls jsonb_path_query json_exists json_query json_value xpath* xmlelement
    coalesce nullif greatest least num_nulls gen_random_uuid uuidv7 pg_typeof version current_user session_user current_catalog
    current_database current_schema
    any_value array_agg* avg* bit_and bit_or bit_xor bool_and bool_or count every json_agg jsonb_agg json_object_agg max min range_agg
    string_agg* sum xmlagg corr covar_pop covar_samp regr_avgx regr_avgy regr_count regr_intercept regr_r2 regr_slope regr_sxx regr_sxy
    regr_syy stddev stddev_pop stddev_samp* variance var_pop var_samp mode percentile_cont percentile_disc rank dense_rank percent_rank
    cume_dist grouping row_number ntile lag lead first_value* last_value* nth_value cast* hashtext
    """,
    "BigQuery": """
    abs acos acosh asin asinh atan atan2 atanh cbrt ceil* ceiling* cos cosh cot coth csc csch div* exp floor* greatest* ieee_divide is_inf
    is_nan least* ln* log* log10* mod pow power rand round* safe_add safe_divide safe_multiply safe_negate safe_subtract sec sech sign* sin
    sinh sqrt* tan tanh trunc* range_bucket
    ascii byte_length char_length character_length chr* code_points_to_bytes code_points_to_string collate concat contains_substr
    edit_distance ends_with format from_base32 from_base64 from_hex initcap* instr left* right* length lower upper lpad* rpad* ltrim* rtrim*
    trim* normalize octet_length regexp_contains regexp_extract* regexp_extract_all* regexp_instr* regexp_replace* regexp_substr repeat*
    replace reverse soundex split* starts_with strpos substr* substring* to_base32 to_base64 to_code_points to_hex translate unicode
    md5* sha1* sha256 sha512 farm_fingerprint bit_count
    current_date current_datetime current_time current_timestamp date date_add* date_diff* date_from_unix_date date_sub* date_trunc*
    datetime datetime_add datetime_diff datetime_sub datetime_trunc extract* format_date format_datetime format_time format_timestamp
    generate_date_array last_day parse_date parse_datetime parse_time parse_timestamp string time time_add time_diff time_sub time_trunc
    timestamp timestamp_add timestamp_diff timestamp_micros timestamp_millis timestamp_seconds timestamp_sub timestamp_trunc unix_date
    unix_micros unix_millis unix_seconds make_interval
    array_concat array_first array_last array_length array_reverse array_slice array_to_string generate_array unnest
    json_array json_extract json_extract_scalar json_keys json_object json_query json_remove json_set json_type json_value parse_json
    to_json* to_json_string bool float64 int64 lax_string
    if ifnull coalesce nullif cast* safe_cast any_value array_agg* array_concat_agg avg* bit_and bit_or bit_xor count countif logical_and
    logical_or max max_by min min_by string_agg* sum corr covar_pop covar_samp stddev stddev_pop stddev_samp* var_pop var_samp variance
    approx_count_distinct approx_quantiles approx_top_count approx_top_sum first_value* last_value* lag lead nth_value percentile_cont
    percentile_disc cume_dist dense_rank ntile percent_rank rank row_number grouping generate_uuid error session_user
    st_asbinary st_geogfromwkb
    """,
    "Snowflake": """
    abs acos acosh asin asinh atan atan2 atanh cbrt ceil* cos cosh cot degrees div0 div0null exp factorial* floor* haversine ln* log* mod pi
    pow power radians random round* sign* sin sinh sqrt* square tan tanh trunc* truncate width_bucket uniform randstr
    ascii base64_encode base64_decode_string bit_length charindex chr* char collate collation concat concat_ws* contains editdistance endswith
    hex_encode hex_decode_string ilike initcap* insert jarowinkler_similarity left* right* length len like lower upper lpad* rpad* ltrim*
    rtrim* trim* md5* md5_hex octet_length parse_ip parse_url* position regexp* regexp_count regexp_instr* regexp_like* regexp_replace*
    regexp_substr regexp_substr_all repeat* replace reverse rlike* sha1* sha1_hex sha2 soundex space split* split_part split_to_table
    startswith strtok strtok_to_array substr* substring* translate unicode uuid_string try_base64_decode_string hash* hash_agg
    add_months* convert_timezone current_date current_time current_timestamp date_from_parts date_part* date_trunc* dateadd* datediff* day
    dayname dayofmonth dayofweek* dayofweekiso dayofyear extract* hour last_day localtime localtimestamp minute month monthname
    months_between* next_day previous_day quarter second time_from_parts time_slice timeadd timediff* timestamp_from_parts timestampadd*
    timestampdiff* week weekiso weekofyear year yearofweek
    array_agg* array_append* array_cat array_compact array_construct array_contains* array_distinct array_except* array_flatten
    array_generate_range array_insert* array_intersection array_max array_min array_position* array_prepend* array_remove* array_remove_at
    array_size array_slice array_sort* array_to_string array_union_agg array_unique_agg arrays_overlap* arrays_to_object arrays_zip
    as_array as_char check_json flatten get* get_path is_array is_null_value map_cat map_contains_key map_delete map_insert map_keys map_pick
    map_size object_agg object_construct object_delete object_insert object_keys object_pick parse_json strip_null_value to_array to_json*
    to_object to_variant try_parse_json typeof* xmlget
    cast* try_cast* to_binary to_boolean to_char* to_date* to_decimal to_double to_number* to_numeric to_time to_timestamp* to_timestamp_ltz*
    to_timestamp_ntz to_varchar* try_to_binary try_to_boolean try_to_date* try_to_decimal try_to_number try_to_time try_to_timestamp*
    bitand bitnot bitor bitxor bitshiftleft bitshiftright getbit booland boolnot boolor boolxor
    case coalesce decode* equal_null greatest* iff ifnull is_null_value least* nullif nullifzero nvl nvl2 regr_valx zeroifnull
    any_value avg* bitand_agg bitor_agg booland_agg boolor_agg boolxor_agg corr count count_if covar_pop covar_samp hll approx_count_distinct
    approx_percentile approx_top_k* kurtosis* listagg* max max_by median min min_by minhash mode percentile_cont percentile_disc
    regr_avgx regr_avgy regr_count regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy skew stddev stddev_pop stddev_samp* sum
    var_pop var_samp variance bitmap_bit_position bitmap_bucket_number bitmap_construct_agg bitmap_count bitmap_or_agg
    conditional_change_event cume_dist dense_rank first_value* lag last_value* lead nth_value ntile percent_rank rank ratio_to_report
    row_number grouping grouping_id seq4 generator vector_cosine_similarity vector_inner_product vector_l2_distance
    current_user current_database current_schema current_version
    """,
}
"""Per dialect, the functions that its documentation lists."""
