"""JSON Schema of `mirrorfeed.yml` for editors: types from the models, texts and defaults from the reference page."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from typing import Any

import yaml
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from mirrorfeed.config import SCHEMA
from mirrorfeed.config.model import Config
from tools.pages import ROOT

PATH = ROOT / "src/mirrorfeed/config" / SCHEMA
_ROW = re.compile(r"^\| `([\w.\[\]]+)` \| [^|]+ \| ((?:`[^`]+`)|\w+) \| (.*) \|$", re.MULTILINE)
_LINK = re.compile(r"\[([^]]+)\]\([^)]+\)")


class _Generator(GenerateJsonSchema):
    """Generates no titles, because names are enough, and no NULL, because a field without a value is an error."""

    def field_title_should_be_set(self, schema: CoreSchema) -> bool:  # type: ignore[override]
        return False

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])


@cache
def fields_on_page() -> Mapping[str, tuple[str, str]]:
    """Return the fields on the page of the configuration, each with the cells for its default and its description."""
    found = _ROW.findall((ROOT / "docs/reference/configuration.md").read_text(encoding="utf-8"))
    fields = {name: (default, description) for name, default, description in found}
    assert len(fields) == len(found), "a field is on the page twice"
    return fields


def page() -> str:
    """Return the schema as the text of a JSON file."""
    generated = Config.model_json_schema(schema_generator=_Generator)
    definitions = generated.pop("$defs")
    complete = _complete(generated, "", definitions)
    reference = {"type": "string", "pattern": r"\$\{\w+\}"}
    schema = {"$schema": "http://json-schema.org/draft-07/schema#", "definitions": {"reference": reference}, **complete}
    return json.dumps(schema, indent=1, ensure_ascii=False) + "\n"


def _complete(node: Any, path: str, definitions: Mapping[str, Any]) -> Any:
    """Return a part of the schema with its definitions inlined, and with the texts of the page for the fields below.

    `path` is the position of the part, such as `alerts.webhooks[].`. The same definition has other texts elsewhere.
    """
    if isinstance(node, list):
        return [_complete(each, path, definitions) for each in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        return _complete(definitions[node["$ref"].rpartition("/")[2]], path, definitions)
    complete = {
        name: _complete(value, f"{path.removesuffix('.')}[]." if name == "items" else path, definitions)
        for name, value in node.items()
        if name not in ("title", "description", "properties")
    }
    if "properties" in node:
        complete["properties"] = {
            name: {**_texts(path + name), **_with_reference(_complete(field, f"{path}{name}.", definitions))}
            for name, field in node["properties"].items()
        }
    return complete


def _with_reference(field: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a field that also accepts a reference to a variable, unless the field is a list or a map."""
    alternatives: list[dict[str, Any]] = field.get("anyOf", [field])
    if any({"properties", "items", "additionalProperties"} & each.keys() for each in alternatives):
        return field
    if any(each.get("type") == "string" and not {"enum", "const", "pattern"} & each.keys() for each in alternatives):
        return field
    return {"anyOf": [*alternatives, {"$ref": "#/definitions/reference"}]}


def _texts(path: str) -> dict[str, Any]:
    """Return description and default of a field. An option of a table has those of the option for all tables."""
    default, description = (
        fields_on_page().get(path) or fields_on_page().get(path.removeprefix("tables[].")) or ("", "")
    )
    text = _LINK.sub(r"\1", description).replace("\\|", "|")
    defaults = {} if default in ("", "none", "required") else {"default": yaml.safe_load(default.strip("`"))}
    return ({"description": text} if text else {}) | defaults
