//! JSON in which each name of an object occurs once.
//! Owns: [`parse`]. Not here: what the values mean (`rpc`).
//! Invariant: as `serde_json`, but a name that occurs twice is an error: `{"force":false,"force":true}` would mean what
//! its reader happens to take.

use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use std::fmt;

/// Parses one value and nothing behind it.
pub(super) fn parse(bytes: &[u8]) -> Result<Value, serde_json::Error> {
    serde_json::from_slice::<Strict>(bytes).map(|strict| strict.0)
}

struct Strict(Value);

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Strict, D::Error> {
        deserializer.deserialize_any(AnyValue).map(Strict)
    }
}

struct AnyValue;

impl<'de> Visitor<'de> for AnyValue {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(Strict(value)) = list.next_element()? {
            values.push(value);
        }
        Ok(values.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Value, A::Error> {
        let mut values = Map::new();
        while let Some((name, Strict(value))) = object.next_entry::<String, Strict>()? {
            if values.contains_key(&name) {
                return Err(A::Error::custom(format!("\"{name}\" occurs twice")));
            }
            values.insert(name, value);
        }
        Ok(values.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_are_those_of_serde_json_and_a_name_occurs_once() {
        let value = json!({"a": [1, -2, 0.5, null, true, "x"], "b": {"a": {}, "c": []}});
        assert_eq!(parse(value.to_string().as_bytes()).expect("JSON"), value);
        for (twice, name) in [(r#"{"a":1,"a":1}"#, "a"), (r#"[{"b":{"c":1,"\u0063":2}}]"#, "c")] {
            assert!(
                parse(twice.as_bytes()).expect_err(twice).to_string().contains(&format!("\"{name}\" occurs twice"))
            );
        }
        assert!(parse(b"{} {}").is_err() && parse(b"").is_err());
        assert!(parse(&b"[".repeat(100_000)).is_err(), "the depth has a limit");
    }
}
