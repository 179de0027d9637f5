"""TPC-DS's dimensions, small: a few rows each, with the values that the queries ask for."""

from __future__ import annotations

from datetime import date, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from random import Random

Fields = dict[str, Any]

FIRST_DAY, LAST_DAY = date(1998, 1, 1), date(2002, 12, 31)
FIRST_DAY_SK = 2450815
DAYS = (LAST_DAY - FIRST_DAY).days + 1
ITEMS, CUSTOMERS, ADDRESSES, PEOPLE, HOUSEHOLDS, STORES = 40, 40, 24, 36, 24, 6
CENTERS, PAGES, SITES, WEB_PAGES, WAREHOUSES, SHIPPINGS, PROMOTIONS, REASONS = (
    4,
    8,
    4,
    6,
    4,
    6,
    6,
    5,
)

CATEGORIES = ("Books", "Home", "Electronics", "Women", "Music", "Sports")
_CLASSES = (
    ("personal", "portable", "reference", "self-help"),
    ("accessories", "classical", "fragrances", "pants"),
)
_BRANDS = (
    (
        "scholaramalgamalg #14",
        "scholaramalgamalg #7",
        "exportiunivamalg #9",
        "scholaramalgamalg #9",
    ),
    ("amalgimporto #1", "edu packscholar #1", "exportiimporto #1", "importoamalg #1"),
)
COLORS = ("pale", "chiffon", "powder", "khaki", "saddle", "peach", "burnished")
_UNITS = ("Ounce", "Oz", "Bunch", "Ton")
_SIZES = ("medium", "extra large", "N/A", "small", "petite", "large")
_PLACES = (
    ("Fairview", "Williamson County", "TN", "35709"),
    ("Midway", "Rush County", "GA", "31904"),
    ("Oak Grove", "Toole County", "OH", "38059"),
    ("Five Points", "Williamson County", "TN", "31675"),
    ("Salem", "Jefferson County", "IN", "24128"),
    ("Union", "Dona Ana County", "KY", "76232"),
    ("Centerville", "La Porte County", "TX", "65084"),
    ("Glendale", "Rush County", "GA", "39303"),
)
MARRIED = ("M", "S", "D", "W")
_EDUCATION = ("College", "2 yr Degree", "4 yr Degree", "Advanced Degree", "Unknown")
_BUYING = (">10000", "0-500", "501-1000", "1001-5000", "5001-10000", "Unknown")
_FIRST = ("James", "Mary", "John", "Linda", "Robert", "Susan", "William")
_LAST = ("Smith", "Brown", "Jones", "Davis", "Miller")
_DAY_NAMES = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_SHIPPING = ("EXPRESS", "NEXT DAY", "OVERNIGHT", "REGULAR", "TWO DAY", "LIBRARY")
_CARRIERS = ("DHL", "BARIAN", "UPS", "FEDEX")
_REASONS = ("Did not fit", "Stopped working", "Wrong size", "Gift exchange", "reason 28")


def cents(value: float) -> Decimal:
    """Return an amount of money."""
    return Decimal(round(value * 100)).scaleb(-2)


def dimensions(random: Random) -> dict[str, list[Fields]]:
    """Return the rows of all tables that are not sales, returns or stock."""
    return {
        "date_dim": [_day(i) for i in range(DAYS)],
        "time_dim": [_time(hour, minute) for hour in range(6, 22) for minute in range(0, 60, 15)],
        "item": [_item(i, random) for i in range(1, ITEMS + 1)],
        "customer_address": [_address(i, random) for i in range(1, ADDRESSES + 1)],
        "customer_demographics": [_person(i, random) for i in range(1, PEOPLE + 1)],
        "income_band": [
            {
                "ib_income_band_sk": i,
                "ib_lower_bound": (i - 1) * 10_000 + 1,
                "ib_upper_bound": i * 10_000,
            }
            for i in range(1, 9)
        ],
        "household_demographics": [_household(i, random) for i in range(1, HOUSEHOLDS + 1)],
        "customer": [_customer(i, random) for i in range(1, CUSTOMERS + 1)],
        "store": [_store(i, random) for i in range(1, STORES + 1)],
        **_places_of_trade(random),
    }


def _id(number: int) -> str:
    return f"AAAAAAAA{number:08d}"


def _day(number: int) -> Fields:
    day = FIRST_DAY + timedelta(days=number)
    dow = day.isoweekday() % 7
    quarter = (day.month + 2) // 3
    return {
        "d_date_sk": FIRST_DAY_SK + number,
        "d_date_id": _id(number),
        "d_date": day,
        "d_month_seq": (day.year - 1900) * 12 + day.month - 1,
        "d_week_seq": 5114 + (number + 4) // 7,
        "d_quarter_seq": (day.year - 1900) * 4 + quarter,
        "d_year": day.year,
        "d_dow": dow,
        "d_moy": day.month,
        "d_dom": day.day,
        "d_qoy": quarter,
        "d_fy_year": day.year,
        "d_day_name": _DAY_NAMES[dow],
        "d_quarter_name": f"{day.year}Q{quarter}",
        "d_holiday": "Y" if (day.month, day.day) in ((1, 1), (7, 4), (12, 25)) else "N",
        "d_weekend": "Y" if dow in (0, 6) else "N",
    }


def _time(hour: int, minute: int) -> Fields:
    meal = "breakfast" if hour in range(6, 10) else "dinner" if hour in range(17, 21) else None
    return {
        "t_time_sk": hour * 3600 + minute * 60,
        "t_time_id": _id(hour * 60 + minute),
        "t_time": hour * 3600 + minute * 60,
        "t_hour": hour,
        "t_minute": minute,
        "t_second": 0,
        "t_am_pm": "AM" if hour < 12 else "PM",
        "t_shift": "first" if hour < 14 else "second",
        "t_sub_shift": "morning" if hour < 12 else "afternoon",
        "t_meal_time": meal,
    }


def _item(number: int, random: Random) -> Fields:
    category = number % len(CATEGORIES)
    kind, within, brand = category // 3, random.randrange(4), random.randrange(4)
    price = random.choice((3, 12, 28, 45, 62, 90)) + random.random()
    return {
        "i_item_sk": number,
        "i_item_id": _id((number + 1) // 2 * 2),
        "i_item_desc": f"An item of {CATEGORIES[category]}, number {number}",
        "i_current_price": cents(price),
        "i_wholesale_cost": cents(price * 0.6),
        "i_brand_id": 1001 + kind * 4 + brand,
        "i_brand": _BRANDS[kind][brand],
        "i_class_id": within + 1,
        "i_class": _CLASSES[kind][within],
        "i_category_id": category + 1,
        "i_category": CATEGORIES[category],
        "i_manufact_id": number % 7 + 1,
        "i_manufact": f"maker {number % 7 + 1}",
        "i_size": random.choice(_SIZES),
        "i_color": COLORS[number % len(COLORS)],
        "i_units": random.choice(_UNITS),
        "i_manager_id": number % 4 + 1,
        "i_product_name": f"product {number}",
    }


def _address(number: int, random: Random) -> Fields:
    city, county, state, code = _PLACES[number % len(_PLACES)]
    return {
        "ca_address_sk": number,
        "ca_address_id": _id(number),
        "ca_street_number": str(random.randrange(1, 1000)),
        "ca_street_name": random.choice(("Oak", "Main", "Park")),
        "ca_street_type": random.choice(("Street", "Lane", None)),
        "ca_suite_number": f"Suite {number}",
        "ca_city": city,
        "ca_county": county,
        "ca_state": state,
        "ca_zip": code,
        "ca_country": "United States",
        "ca_gmt_offset": Decimal("-6.00") if state == "TX" else Decimal("-5.00"),
        "ca_location_type": random.choice(("apartment", "condo", None)),
    }


def _person(number: int, random: Random) -> Fields:
    return {
        "cd_demo_sk": number,
        "cd_gender": "MF"[number % 3 == 0],
        "cd_marital_status": MARRIED[number // 2 % 4] if number % 5 else "S",
        "cd_education_status": _EDUCATION[number // 3 % 5] if number % 5 else "College",
        "cd_purchase_estimate": 500 * random.randrange(1, 6),
        "cd_credit_rating": random.choice(("Good", "Low Risk", "High Risk")),
        "cd_dep_count": random.randrange(4),
        "cd_dep_employed_count": random.randrange(3),
        "cd_dep_college_count": random.randrange(3),
    }


def _household(number: int, random: Random) -> Fields:
    return {
        "hd_demo_sk": number,
        "hd_income_band_sk": number % 8 + 1,
        "hd_buy_potential": _BUYING[number % len(_BUYING)],
        "hd_dep_count": number // 2 % 6,
        "hd_vehicle_count": random.choice((0, 1, 1, 2, 3)),
    }


def _customer(number: int, random: Random) -> Fields:
    first, last = random.choice((*_FIRST, None)), random.choice((*_LAST, None))
    return {
        "c_customer_sk": number,
        "c_customer_id": _id(number),
        "c_current_cdemo_sk": known(random, PEOPLE),
        "c_current_hdemo_sk": known(random, HOUSEHOLDS),
        "c_current_addr_sk": random.randrange(1, ADDRESSES + 1),
        "c_first_shipto_date_sk": FIRST_DAY_SK + random.randrange(800),
        "c_first_sales_date_sk": FIRST_DAY_SK + random.randrange(800),
        "c_salutation": random.choice(("Mr.", "Ms.", "Dr.")),
        "c_first_name": first,
        "c_last_name": last,
        "c_preferred_cust_flag": random.choice(("Y", "Y", "N", None)),
        "c_birth_day": random.randrange(1, 29),
        "c_birth_month": random.randrange(1, 13),
        "c_birth_year": random.randrange(1930, 1990),
        "c_birth_country": random.choice(("UNITED STATES", "CANADA")),
        "c_login": None,
        "c_email_address": f"customer{number}@example.com",
        "c_last_review_date": FIRST_DAY_SK + random.randrange(DAYS),
    }


def _store(number: int, random: Random) -> Fields:
    city, county, state, code = _PLACES[(number - 1) % 4]
    return {
        "s_store_sk": number,
        "s_store_id": _id((number + 1) // 2),
        "s_store_name": ("ese", "ought", "able")[number % 3],
        "s_number_employees": random.randrange(190, 300),
        "s_floor_space": random.randrange(5_000_000, 10_000_000),
        "s_hours": "8AM-8PM",
        "s_manager": random.choice(_LAST),
        "s_market_id": 8 if number % 2 else 5,
        "s_division_name": "Unknown",
        "s_company_id": 1,
        "s_company_name": "Unknown",
        "s_street_number": str(random.randrange(1, 1000)),
        "s_street_name": "Main",
        "s_street_type": "Street",
        "s_suite_number": f"Suite {number}",
        "s_city": city,
        "s_county": county,
        "s_state": state,
        "s_zip": code,
        "s_gmt_offset": Decimal("-5.00"),
    }


def _places_of_trade(random: Random) -> dict[str, list[Fields]]:
    centers = [
        {
            "cc_call_center_sk": i,
            "cc_call_center_id": _id(i),
            "cc_name": f"center {i}",
            "cc_manager": random.choice(_LAST),
            "cc_county": "Williamson County" if i < 4 else "Rush County",
        }
        for i in range(1, CENTERS + 1)
    ]
    sites = [
        {
            "web_site_sk": i,
            "web_site_id": _id(i),
            "web_name": f"site_{i // 2}",
            "web_company_name": "pri" if i < 4 else "able",
        }
        for i in range(1, SITES + 1)
    ]
    warehouses = [
        {
            "w_warehouse_sk": i,
            "w_warehouse_id": _id(i),
            "w_warehouse_name": None if i == WAREHOUSES else f"Warehouse number {i} of these",
            "w_warehouse_sq_ft": 100_000 * i,
            "w_city": _PLACES[i][0],
            "w_county": _PLACES[i][1],
            "w_state": _PLACES[i][2],
            "w_country": "United States",
        }
        for i in range(1, WAREHOUSES + 1)
    ]
    shippings = [
        {
            "sm_ship_mode_sk": i,
            "sm_ship_mode_id": _id(i),
            "sm_type": _SHIPPING[i - 1],
            "sm_code": random.choice(("AIR", "SURFACE", "SEA")),
            "sm_carrier": _CARRIERS[i % 4],
        }
        for i in range(1, SHIPPINGS + 1)
    ]
    channels = ("p_channel_dmail", "p_channel_email", "p_channel_tv", "p_channel_event")
    promotions = [
        {"p_promo_sk": i, "p_promo_id": _id(i), "p_promo_name": f"promotion {i}"}
        | {channel: random.choice("YNN") for channel in channels}
        for i in range(1, PROMOTIONS + 1)
    ]
    return {
        "call_center": centers,
        "catalog_page": [
            {"cp_catalog_page_sk": i, "cp_catalog_page_id": _id(i)} for i in range(1, PAGES + 1)
        ],
        "web_site": sites,
        "web_page": [
            {"wp_web_page_sk": i, "wp_web_page_id": _id(i), "wp_char_count": 2000 + 900 * i}
            for i in range(1, WEB_PAGES + 1)
        ],
        "warehouse": warehouses,
        "ship_mode": shippings,
        "promotion": promotions,
        "reason": [
            {"r_reason_sk": i, "r_reason_id": _id(i), "r_reason_desc": _REASONS[i - 1]}
            for i in range(1, REASONS + 1)
        ],
    }


def known(random: Random, most: int) -> int | None:
    """Return one of so many keys, or now and then NULL."""
    return None if random.random() < 0.04 else random.randrange(1, most + 1)
