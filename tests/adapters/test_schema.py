"""Schemas as OpenAI's strict mode takes them."""

from copy import deepcopy

import pytest

from chatrouting.adapters._schema import strict_schema


def closed(properties, **more):
    return {
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
        "required": list(properties),
        **more,
    }


def opened(properties, **more):
    return {"type": "object", "properties": properties, **more}


TEXT = {"type": "string", "minLength": 1}


@pytest.mark.parametrize(
    ("schema", "strict"),
    [
        pytest.param(TEXT, TEXT, id="no object"),
        pytest.param(
            {"type": "object"},
            {"type": "object", "additionalProperties": False, "required": []},
            id="no properties",
        ),
        pytest.param(
            opened({"a": TEXT, "b": TEXT}, required=["a"]),
            closed({"a": TEXT, "b": TEXT}),
            id="optional",
        ),
        pytest.param(
            opened({"a": opened({"b": TEXT})}), closed({"a": closed({"b": TEXT})}), id="nested"
        ),
        pytest.param(
            {"type": "array", "items": opened({"a": TEXT})},
            {"type": "array", "items": closed({"a": TEXT})},
            id="in a list",
        ),
        pytest.param(
            {"anyOf": [opened({"a": TEXT}), {"type": "null"}, True]},
            {"anyOf": [closed({"a": TEXT}), {"type": "null"}, True]},
            id="one of several",
        ),
        pytest.param(
            {"$defs": {"it": opened({"a": TEXT})}, "$ref": "#/$defs/it"},
            {"$defs": {"it": closed({"a": TEXT})}, "$ref": "#/$defs/it"},
            id="defined elsewhere",
        ),
        pytest.param(
            opened({"a": TEXT}, type=["object", "null"]),
            closed({"a": TEXT}, type=["object", "null"]),
            id="may be null",
        ),
        pytest.param(
            opened({"properties": TEXT}), closed({"properties": TEXT}), id="a property of that name"
        ),
        pytest.param(
            opened({}, additionalProperties=True),
            closed({}, additionalProperties=True),
            id="said to be open",
        ),
    ],
)
def test_objects_are_closed_and_complete(schema, strict):
    """At every depth; what the caller gave stays as it is."""
    before = deepcopy(schema)

    assert strict_schema(schema) == strict
    assert schema == before
