"""The description of the service in OpenAPI 3.1, for programs that generate clients."""

from __future__ import annotations

from typing import Any

from psco.server.serve.bodies import ServeLimits
from psco.version import __version__

_LABEL = {"type": ["string", "number", "boolean"], "description": "A class, or 'unknown'."}
_SCHEMAS: dict[str, Any] = {
    "Error": {
        "type": "object",
        "required": ["error"],
        "properties": {"error": {"type": "string", "description": "One line."}},
    },
    "Health": {
        "type": "object",
        "required": [
            "status",
            "psco",
            "name",
            "classes",
            "draw",
            "requests",
            "pictures",
            "batches",
        ],
        "properties": {
            "status": {"type": "string"},
            "psco": {"type": "string", "description": "The version."},
            "name": {"type": "string"},
            "classes": {"type": "integer"},
            "draw": {"type": "boolean", "description": "Whether /draw is a page for drawing."},
            "requests": {"type": "integer"},
            "pictures": {"type": "integer"},
            "batches": {"type": "integer"},
        },
    },
    "Result": {
        "type": "object",
        "required": ["name"],
        "description": "The answer for one picture, or the error why there is none.",
        "properties": {
            "name": {"type": "string", "description": "File name, or number in the request."},
            "label": _LABEL,
            "unknown": {"type": "boolean", "description": "Whether it is of none of the classes."},
            "probabilities": {
                "type": "array",
                "description": "The most probable classes first.",
                "items": {
                    "type": "object",
                    "required": ["label", "probability"],
                    "properties": {"label": _LABEL, "probability": {"type": "number"}},
                },
            },
            "error": {"type": "string"},
        },
    },
    "Results": {
        "type": "object",
        "required": ["results"],
        "properties": {
            "results": {"type": "array", "items": {"$ref": "#/components/schemas/Result"}}
        },
    },
}
_REFUSALS = {
    "400": "the connection was closed",
    "408": "the body came too slowly",
    "413": "the body, or the number of pictures, exceeds a limit",
    "415": "the body is of an unknown type",
    "422": "the body is not what its type says, or no picture can be decoded",
    "503": "too many pictures are waiting",
}


def describe(name: str, limits: ServeLimits) -> dict[str, Any]:
    """Return the description of a service called ``name``."""
    answers = {"200": _answer("Results", "One result for each picture, in order.")}
    answers |= {status: _answer("Error", text) for status, text in _REFUSALS.items()}
    binary = {"schema": {"type": "string", "contentMediaType": "application/octet-stream"}}
    classify = {
        "summary": "Classify pictures",
        "description": f"At most {limits.pictures} pictures and {limits.body_bytes / 1e6:g} MB.",
        "parameters": [
            {
                "name": "top",
                "in": "query",
                "description": "Number of classes whose probabilities are returned.",
                "schema": {"type": "integer", "minimum": 1, "default": 5},
            }
        ],
        "requestBody": {
            "required": True,
            "content": {
                "multipart/form-data": {
                    "schema": {
                        "type": "object",
                        "properties": {"images": {"type": "array", "items": binary["schema"]}},
                    }
                },
                "image/*": binary,
                "application/octet-stream": binary,
                "application/json": {
                    "schema": {
                        "type": "object",
                        "required": ["images"],
                        "properties": {
                            "images": {
                                "type": "array",
                                "items": {"type": "string", "contentEncoding": "base64"},
                            }
                        },
                    }
                },
            },
        },
        "responses": answers,
    }
    health = {
        "summary": "Whether the service runs",
        "responses": {"200": _answer("Health", "It runs.")},
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": name, "version": __version__},
        "paths": {"/classify": {"post": classify}, "/health": {"get": health}},
        "components": {"schemas": _SCHEMAS},
    }


def _answer(schema: str, text: str) -> dict[str, Any]:
    content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{schema}"}}}
    return {"description": text, "content": content}
