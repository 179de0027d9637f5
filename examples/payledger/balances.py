"""What a payment does to the balance of its merchant: the fold of `merchant_balance`."""

from __future__ import annotations

from decimal import ROUND_HALF_EVEN, Decimal
from typing import Any

import headrace

CENT = Decimal("0.01")
NOTHING = Decimal("0.00")


def finished(state: dict[str, Any]) -> dict[str, Any]:
    """Return the row of a merchant: what is pending is the sum over its captures."""
    return {
        "available_balance": state["available"],
        "pending_balance": sum(state["pending"].values(), NOTHING),
        "reserve_hold": state["reserve"],
        "last_event_time": state["last"],
        "policy_version": state["version"],
    }


@headrace.fold(
    key=["merchant_id", "currency"],
    order_by=["event_time", "event_id"],
    returns="available_balance DECIMAL(18,2), pending_balance DECIMAL(18,2),"
    " reserve_hold DECIMAL(18,2), last_event_time TIMESTAMP, policy_version INT",
    start={"available": NOTHING, "pending": {}, "reserve": NOTHING, "last": None, "version": None},
    finish=finished,
)
def merchant_balance_of(state: dict[str, Any], event: Any) -> dict[str, Any]:
    """Return the state after an event; `pending` has what is left of each unsettled capture."""
    pending, capture = state["pending"], event.capture_id
    match event.kind:
        case "capture_settled":
            held = (event.amount * event.rate).quantize(CENT, ROUND_HALF_EVEN)
            state["reserve"] += held
            pending[capture] = event.amount - held
        case "funds_settled":
            state["available"] += pending.pop(capture, NOTHING)
        case "refund_posted":
            taken = min(event.amount, pending.get(capture, NOTHING))
            if taken:
                pending[capture] -= taken
            state["available"] -= event.amount - taken
        case "chargeback_opened":
            taken = min(event.amount, state["reserve"])
            state["reserve"] -= taken
            state["available"] -= event.amount - taken
        case "payout_sent":
            state["available"] -= event.amount
    state["last"], state["version"] = event.event_time, event.version
    return state
