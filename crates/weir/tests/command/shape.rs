//! Shapes of JSON as the book writes them, and whether a value fits one.
//!
//! In a shape a string names a type: `text`, `count` (a whole number, 0 or more), `integer`,
//! `number`, `flag`, `null`, alternatives with ` or `; anything else in quotes with `|` between is
//! one of these words. `[shape]` is a list, `"key?"` may be missing, `"*"` stands for any key.

use serde_json::Value;

/// Why `value` does not fit `shape`, with the path.
pub fn fits(shape: &Value, value: &Value, path: &str) -> Result<(), String> {
    match shape {
        Value::String(kinds) => {
            if kinds.split(" or ").any(|kind| is(kind, value)) {
                return Ok(());
            }
            Err(format!("{path}: {value} is not {kinds}"))
        }
        Value::Array(of) => {
            let list = value.as_array().ok_or_else(|| format!("{path}: not a list"))?;
            if of.len() > 1 {
                // A tuple.
                if of.len() != list.len() {
                    return Err(format!("{path}: {} elements instead of {}", list.len(), of.len()));
                }
                return of.iter().zip(list).try_for_each(|(s, v)| fits(s, v, path));
            }
            list.iter().enumerate().try_for_each(|(i, v)| fits(&of[0], v, &format!("{path}[{i}]")))
        }
        Value::Object(keys) => {
            let object = value.as_object().ok_or_else(|| format!("{path}: not an object"))?;
            if let Some(any) = keys.get("*") {
                return object.iter().try_for_each(|(k, v)| fits(any, v, &format!("{path}.{k}")));
            }
            for (key, shape) in keys {
                let (key, optional) = key.strip_suffix('?').map_or((key.as_str(), false), |k| (k, true));
                match object.get(key) {
                    Some(value) => fits(shape, value, &format!("{path}.{key}"))?,
                    None if optional => {}
                    None => return Err(format!("{path}: no `{key}`")),
                }
            }
            match object.keys().find(|k| !keys.contains_key(*k) && !keys.contains_key(&format!("{k}?"))) {
                Some(key) => Err(format!("{path}.{key} is not documented")),
                None => Ok(()),
            }
        }
        other => Err(format!("{path}: {other} is no shape")),
    }
}

fn is(kind: &str, value: &Value) -> bool {
    match kind {
        "text" => value.is_string(),
        "count" => value.is_u64(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "flag" => value.is_boolean(),
        "null" => value.is_null(),
        words => words.contains('|') && value.as_str().is_some_and(|v| words.split('|').any(|w| w == v)),
    }
}

/// The first block of JSON under the heading of `command` on the book's page.
pub fn of(page: &str, command: &str) -> Value {
    let heading = format!("\n## `{command}`");
    let at = page.find(&heading).unwrap_or_else(|| panic!("json.md has no {heading:?}"));
    let block = page[at..].split("```json\n").nth(1).and_then(|rest| rest.split("```").next());
    serde_json::from_str(block.unwrap()).unwrap_or_else(|e| panic!("the shape of {command}: {e}"))
}

#[test]
fn shapes_catch_what_does_not_fit() {
    use serde_json::json;
    let shape = json!({"a": "count", "b?": ["text or null"], "c": {"*": "x|y"}, "d": [["count", "text"]]});
    let good = json!({"a": 1, "b": ["t", null], "c": {"k": "x"}, "d": [[1, "t"]]});
    assert_eq!(fits(&shape, &good, ""), Ok(()));
    for (key, bad) in [
        ("a", json!(-1)),
        ("a", json!(1.5)),
        ("b", json!([1])),
        ("c", json!({"k": "z"})),
        ("d", json!([[1]])),
        ("d", json!([["t", 1]])),
        ("new", json!(1)),
    ] {
        let mut value = good.clone();
        value[key] = bad.clone();
        assert!(fits(&shape, &value, "").is_err(), "{key}: {bad}");
    }
    let mut missing = good.clone();
    missing.as_object_mut().unwrap().remove("a");
    assert!(fits(&shape, &missing, "").is_err());
}
