use serde_json::json;

use super::*;

fn field_kind(form: Value) -> Result<FieldKind, String> {
    let mut fields = told(fields(&json!({"properties": {"a": form}})))?;
    Ok(fields.remove(0).kind)
}

fn told<T>(outcome: Result<T, Trouble>) -> Result<T, String> {
    outcome.map_err(|trouble| match trouble {
        Trouble::Invalid(message) => message,
        other => panic!("{other:?}"),
    })
}

#[test]
fn flat_objects_are_understood() {
    let form = json!({"type": "object", "title": "Opinion", "$schema": "x", "$defs": {"unused": {}},
        "additionalProperties": false, "required": ["nonce", "level"], "properties": {
        "nonce": {"const": "a1", "type": "string"},
        "why": {"type": "string", "maxLength": 80, "description": "in one sentence", "default": ""},
        "unsafe": {"type": "boolean", "readOnly": true, "x-order": 3},
        "level": {"enum": ["low", "high"], "examples": ["low"]},
        "score": {"type": "number", "minimum": 0, "maximum": 1.0},
    }});
    let fields = told(fields(&form)).unwrap();
    let names: Vec<&str> = fields.iter().map(|field| field.name.as_str()).collect();
    assert_eq!(names, ["nonce", "why", "unsafe", "level", "score"]);
    assert_eq!(fields[4].kind, FieldKind::Number { least: 0, most: 1, decimals: 2 });
    assert_eq!(
        field_kind(json!({"type": "integer", "minimum": -2.0, "maximum": 3e1})),
        Ok(FieldKind::Number { least: -2, most: 30, decimals: 0 })
    );
    for (form, least, most, decimals) in [
        (json!({"type": "integer"}), None, None, 0),
        (json!({"type": "integer", "minimum": 0}), Some(0), None, 0),
        (json!({"type": "number", "maximum": 5.0}), None, Some(5), 2),
    ] {
        assert_eq!(field_kind(form), Ok(FieldKind::OpenNumber { least, most, decimals }));
    }
    assert_eq!(field_kind(json!({"type": "string", "maxLength": 8.0})), Ok(FieldKind::Text { most: 8 }));
    assert_eq!(field_kind(json!({"type": "string"})), Ok(FieldKind::Text { most: USUAL_LENGTH }));
}

#[test]
fn what_a_field_is_not_held_to_is_refused_with_its_path() {
    let number = |more: Value| {
        let mut form = json!({"type": "integer", "minimum": 0, "maximum": 9});
        form.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        form
    };
    for (form, path) in [
        (json!({"type": "string", "pattern": "^a+$"}), "pattern"),
        (json!({"type": "string", "minLength": 30}), "minLength"),
        (json!({"type": "string", "format": "date"}), "format"),
        (json!({"type": "string", "maxlength": 3}), "maxlength"),
        (json!({"type": "string", "maxLength": -1}), "maxLength"),
        (json!({"type": "string", "maxLength": "3"}), "maxLength"),
        (json!({"type": "string", "not": {"const": ""}}), "not"),
        (json!({"const": "abc", "maxLength": 2}), "maxLength"),
        (json!({"const": "abc", "enum": ["x"]}), "enum"),
        (json!({"const": 1}), "const"),
        (json!({"enum": ["a"], "type": "integer"}), "type"),
        (json!({"enum": ["a", 1]}), "enum"),
        (number(json!({"multipleOf": 4})), "multipleOf"),
        (number(json!({"exclusiveMinimum": 3})), "exclusiveMinimum"),
        (number(json!({"maximum": 1.5})), "maximum"),
        (number(json!({"minimum": 1e12})), "minimum"),
        (json!({"type": "number", "minimum": null}), "minimum"),
        (json!({"type": "integer", "maximum": "9"}), "maximum"),
        (json!({"type": "boolean", "anyOf": []}), "anyOf"),
        (json!({"$ref": "#"}), "$ref"),
        (json!({"type": ["string", "null"]}), "type"),
        (json!({"type": "object", "properties": {}}), "properties"),
        (json!({"type": "array"}), "type"),
        (json!({}), "type"),
    ] {
        let message = field_kind(form.clone()).expect_err(&form.to_string());
        assert!(message.starts_with(&format!("`#/properties/a/{path}` ")), "{form}: {message}");
    }
    assert!(field_kind(json!(true)).unwrap_err().starts_with("`#/properties/a` must be an object"));
    let slashes = json!({"properties": {"a/~b": {"type": "string", "pattern": "x"}}});
    assert!(told(fields(&slashes)).unwrap_err().starts_with("`#/properties/a~1~0b/pattern` "));
}

#[test]
fn what_an_object_is_not_held_to_is_refused_with_its_path() {
    for (more, path) in [
        (json!({"type": "string"}), "type"),
        (json!({"properties": null}), "properties"),
        (json!({"required": ["a", "b"]}), "required"),
        (json!({"required": true}), "required"),
        (json!({"minProperties": 2}), "minProperties"),
        (json!({"patternProperties": {}}), "patternProperties"),
        (json!({"allOf": []}), "allOf"),
        (json!({"$ref": "#/$defs/x"}), "$ref"),
    ] {
        let mut form = json!({"properties": {"a": {"type": "boolean"}}});
        form.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let message = told(fields(&form)).unwrap_err();
        assert!(message.starts_with(&format!("`#/{path}` ")), "{more}: {message}");
    }
    assert!(told(fields(&json!(true))).is_err());
}

#[test]
fn the_type_of_the_format_decides() {
    let schema = json!({"schema": {"properties": {}}});
    let wanted_by = |format: Value| {
        let body = json!({ "response_format": format });
        told(wanted(body.as_object().unwrap()).map(|schema| schema.is_some()))
    };
    assert_eq!(wanted_by(json!({"type": "json_schema", "json_schema": schema})), Ok(true));
    for free in [json!(null), json!({"type": "text", "json_schema": schema}), json!({"type": "json_object"})]
    {
        assert_eq!(wanted_by(free), Ok(false));
    }
    for (odd, named) in [
        (json!({"type": "json_schema"}), "`response_format.json_schema.schema`"),
        (
            json!({"type": "json_schema", "json_schema": {"name": "x"}}),
            "`response_format.json_schema.schema`",
        ),
        (json!({"json_schema": schema}), "`response_format.type`"),
        (json!({"type": "xml"}), "`response_format.type`"),
        (json!("json"), "`response_format.type`"),
    ] {
        assert!(wanted_by(odd).unwrap_err().starts_with(named));
    }
}
