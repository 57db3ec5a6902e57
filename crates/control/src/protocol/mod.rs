//! The control protocol: JSON-RPC 2.0, one object per line, both ways.
//! Owns: calls, answers and errors as lines. Not here: sockets (`control`, `client`), what the methods do (`serve`).
//! Invariant: any bytes on the socket become a call or an error answer, never a panic; a line is bounded.
//! Spec: www.jsonrpc.org/specification, without batches and notifications: a request without an id is refused.

mod check_record;
mod check_result;
mod method;
mod rpc_error;
mod strict_json;

pub use check_record::{CheckFact, CheckRecord};
pub use check_result::{CheckResult, Mismatch, not_compared};
pub use method::{BitmapCall, Method, NewDevice, NewDevices};
pub(crate) use method::{FAIL_TIME_MAX, STATUS_TIME_MAX};
pub use rpc_error::RpcError;

use crate::words::names;
use serde_json::{Map, Value, json};

/// The most bytes of a request's line: an `add` of 384 members with paths of 4,096 bytes has 1.5 MiB.
pub const LINE_BYTES_MAX: usize = 4 << 20;

/// The most bytes of an answer's line: md has at most 1,920 members, and a path of 4,096 bytes is at most 24 KiB of
/// JSON.
pub const ANSWER_BYTES_MAX: usize = 64 << 20;

/// The version of the protocol. A request and an answer carry it; where it is not given, it is 1. It changes when a method
/// or an answer means something else than before, not when one is added.
pub const VERSION: u64 = 1;

/// One request.
#[derive(Clone, PartialEq, Debug)]
pub struct Call {
    /// The id of the answer.
    pub id: Value,
    /// What is asked.
    pub method: Method,
}

/// Reads one line. The error carries the id for its answer.
pub fn parse_call(line: &[u8]) -> Result<Call, (Value, RpcError)> {
    let value = strict_json::parse(line)
        .map_err(|error| (Value::Null, RpcError::new(RpcError::PARSE, format!("no JSON: {error}"))))?;
    let Value::Object(request) = value else {
        return Err((Value::Null, RpcError::new(RpcError::INVALID_REQUEST, "a request is an object")));
    };
    let id = request.get("id").cloned();
    let answer_id = id.clone().unwrap_or(Value::Null);
    let fail = |code, message: &str| Err((answer_id.clone(), RpcError::new(code, message)));
    if request.get("jsonrpc") != Some(&json!("2.0")) {
        return fail(RpcError::INVALID_REQUEST, "jsonrpc is not \"2.0\"");
    }
    if let Some(found) = other_version(&request) {
        let text = format!(
            "version {found} of the control protocol, and this server speaks version {VERSION}: use the uraid that serves \
             the array"
        );
        return fail(RpcError::VERSION, &text);
    }
    let method = match request.get("method").and_then(Value::as_str) {
        Some(name) => method_called(name, request.get("params")).map_err(|error| (answer_id.clone(), error))?,
        None => return fail(RpcError::INVALID_REQUEST, "no method"),
    };
    answerable(id).map(|id| Call { id, method }).or_else(|text| fail(RpcError::INVALID_REQUEST, text))
}

/// The version of a request or an answer, if it is another one than this.
fn other_version(message: &Map<String, Value>) -> Option<&Value> {
    message.get("version").filter(|version| version.as_u64() != Some(VERSION))
}

/// A method with its parameters. One that it does not know is refused: it would be one that the caller counts on.
fn method_called(name: &str, params: Option<&Value>) -> Result<Method, RpcError> {
    let invalid = |text: &str| RpcError::new(RpcError::INVALID_PARAMS, format!("{name}: {text}"));
    let mut params = match params {
        None | Some(Value::Null) => Map::new(),
        Some(Value::Object(params)) => params.clone(),
        Some(_) => return Err(invalid("\"params\" is an object")),
    };
    params.retain(|_, value| !value.is_null());
    // One member needs no list.
    if !params.contains_key("members")
        && let Some(member) = params.remove("member")
    {
        params.insert("members".to_owned(), json!([member]));
    }
    let read = |params: Map<String, Value>| serde_json::from_value(json!({ "method": name, "params": params }));
    read(params).map_err(|error: serde_json::Error| match unknown_method(name, &read(Map::new())) {
        Some(text) => RpcError::new(RpcError::METHOD_NOT_FOUND, text),
        None => invalid(&format!("{}; docs/control-protocol.md has all calls", names::printable(&error.to_string()))),
    })
}

/// What is said if there is no such method; `outcome`: that of reading it without parameters.
fn unknown_method(name: &str, outcome: &Result<Method, serde_json::Error>) -> Option<String> {
    let text = outcome.as_ref().err()?.to_string();
    let others = text.strip_prefix(&format!("unknown variant `{name}`"))?;
    Some(format!("no such method{}", others.replace('`', "")))
}

/// The id that an answer can carry.
fn answerable(id: Option<Value>) -> Result<Value, &'static str> {
    match id {
        Some(id @ (Value::Number(_) | Value::String(_) | Value::Null)) => Ok(id),
        Some(_) => Err("an id is a number, a text or null"),
        // The protocol's notifications have no answer, and their caller would not learn what became of them.
        None => Err("no id: each request gets an answer, which carries the id; nothing was done"),
    }
}

/// A request as a line, with its end.
pub fn call_line(method: &Method) -> String {
    let mut request = json!(method);
    request["jsonrpc"] = json!("2.0");
    request["id"] = json!(1);
    request["version"] = json!(VERSION);
    format!("{request}\n")
}

/// An answer as a line, with its end.
pub fn answer_line(id: &Value, outcome: Result<Value, RpcError>) -> String {
    let mut answer = json!({ "jsonrpc": "2.0", "id": id, "version": VERSION });
    match outcome {
        // Moved: `json!` would copy it, and a report is thousands of values, on a thread that also serves requests.
        Ok(result) => answer["result"] = result,
        Err(RpcError { code, message }) => answer["error"] = json!({ "code": code, "message": message }),
    }
    format!("{answer}\n")
}

/// Why a line is no answer.
#[derive(Debug, thiserror::Error)]
pub enum AnswerError {
    /// It is something else.
    #[error("no answer of the control protocol")]
    Alien,
    /// It is one of another version.
    #[error("it speaks version {found} of the control protocol, and this uraid version {VERSION}")]
    Version {
        /// What it says.
        found: String,
    },
}

/// Reads an answer. The outer error: these bytes are not an answer.
pub fn parse_answer(line: &[u8]) -> Result<Result<Value, RpcError>, AnswerError> {
    let mut answer: Map<String, Value> = serde_json::from_slice(line).map_err(|_| AnswerError::Alien)?;
    if let Some(error) = answer.get("error") {
        let code = error.get("code").and_then(Value::as_i64).unwrap_or(RpcError::REFUSED);
        let message = error.get("message").and_then(Value::as_str).unwrap_or("an error without a message");
        return Ok(Err(RpcError::new(code, message)));
    }
    if let Some(found) = other_version(&answer) {
        return Err(AnswerError::Version { found: found.to_string() });
    }
    Ok(Ok(answer.remove("result").unwrap_or(Value::Null)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use uraid_format::{FlagChange, MemberFlag};

    #[test]
    fn calls_and_answers_survive_the_way() {
        let fail = Method::Fail { members: vec!["disk \"2\"\n".to_owned(), "3".to_owned()] };
        for method in [
            Method::Status {},
            Method::Stop { all: false, force: true },
            Method::Stop { all: true, force: false },
            fail,
        ] {
            let line = call_line(&method);
            assert_eq!(line.matches('\n').count(), 1, "one line");
            assert_eq!(parse_call(line.as_bytes()), Ok(Call { id: json!(1), method }));
        }
        let refused = RpcError::refused("raid0 tolerates no failure");
        assert_eq!(parse_answer(answer_line(&json!(1), Err(refused.clone())).as_bytes()).expect("JSON"), Err(refused));
        assert_eq!(parse_answer(answer_line(&json!(1), Ok(json!(7))).as_bytes()).expect("JSON"), Ok(json!(7)));
    }

    #[test]
    fn changes_of_the_bitmap_survive_the_way() {
        let chunks = [(None, 0), (Some(64), 16_383)];
        let chunks = chunks.map(|(chunk_sectors, write_behind)| BitmapCall::Add { chunk_sectors, write_behind });
        for call in chunks.into_iter().chain([BitmapCall::Remove {}]) {
            let line = call_line(&Method::Bitmap(call));
            assert_eq!(parse_call(line.as_bytes()).expect("a call").method, Method::Bitmap(call));
        }
        let behind = "{\"bitmap\":\"internal\",\"write_behind\":16384}";
        for params in ["{}", "{\"bitmap\":\"file\"}", "{\"bitmap\":\"internal\",\"chunk_sectors\":-1}", behind] {
            let line = format!("{{\"jsonrpc\":\"2.0\",\"method\":\"bitmap\",\"params\":{params}}}");
            assert_eq!(parse_call(line.as_bytes()).expect_err(params).1.code, RpcError::INVALID_PARAMS);
        }
    }

    #[test]
    fn flags_of_new_devices_survive_the_way() {
        let device = |path: &str, flags| NewDevice { path: path.to_owned(), flags };
        let (write_mostly, failfast) = (MemberFlag::WriteMostly, MemberFlag::FailFast);
        let both = FlagChange::default().with(write_mostly, true).with(failfast, false);
        let members = vec![device("a", both), device("b", FlagChange::default())];
        let method = Method::Add(NewDevices { members, force: true });
        assert_eq!(parse_call(call_line(&method).as_bytes()).expect("a call").method, method);
        let parsed = |flags: &str| {
            let params = format!("{{\"members\":[\"a\"],\"flags\":{flags}}}");
            let line = format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"add\",\"params\":{params}}}");
            parse_call(line.as_bytes()).map(|call| call.method).map_err(|(_, error)| error.code)
        };
        let plain = Method::Add(NewDevices { members: vec![device("a", FlagChange::default())], force: false });
        assert_eq!(parsed("null"), Ok(plain.clone()));
        assert_eq!(parsed("[{}]"), Ok(plain));
        for wrong in ["[]", "{}", "[{},{}]", "[{\"journal\":true}]", "[{\"failfast\":1}]", "[1]"] {
            assert_eq!(parsed(wrong), Err(RpcError::INVALID_PARAMS), "{wrong}");
        }
    }

    #[test]
    fn one_member_needs_no_list() {
        let line = br#"{"jsonrpc":"2.0","id":1,"method":"fail","params":{"member":"1"}}"#;
        let method = Method::Fail { members: vec!["1".to_owned()] };
        assert_eq!(parse_call(line), Ok(Call { id: json!(1), method }));
    }

    #[test]
    fn garbage_gets_the_protocol_s_error() {
        let code = |line: &[u8]| parse_call(line).expect_err("garbage").1.code;
        assert_eq!(code(b"GET / HTTP/1.1"), RpcError::PARSE);
        assert_eq!(code(b"\xff\xfe\0"), RpcError::PARSE);
        assert_eq!(code(&b"[".repeat(10_000)), RpcError::PARSE);
        assert_eq!(code(b"[]"), RpcError::INVALID_REQUEST);
        assert_eq!(code(b"{\"method\":\"stop\"}"), RpcError::INVALID_REQUEST);
        assert_eq!(code(b"{\"jsonrpc\":\"2.0\",\"method\":\"format\"}"), RpcError::METHOD_NOT_FOUND);
        assert_eq!(code(b"{\"jsonrpc\":\"2.0\",\"method\":\"fail\",\"params\":[1]}"), RpcError::INVALID_PARAMS);
        for params in ["{\"members\":[]}", "{\"members\":[1]}", "{\"members\":[\"1\"],\"member\":\"2\"}"] {
            let line = format!("{{\"jsonrpc\":\"2.0\",\"method\":\"fail\",\"params\":{params}}}");
            assert_eq!(code(line.as_bytes()), RpcError::INVALID_PARAMS, "{params}");
        }
        for (name, params) in [
            ("fail", "{\"members\":[\"1\"],\"force\":true}"),
            ("stop", "{\"all\":\"no\"}"),
            ("stop", "{\"everything\":true}"),
            ("speed", "{\"maximum\":5}"),
            ("failfast", "{\"members\":[\"1\"],\"set\":\"no\"}"),
            ("status", "[]"),
        ] {
            let line = format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"{name}\",\"params\":{params}}}");
            assert_eq!(code(line.as_bytes()), RpcError::INVALID_PARAMS, "{name} {params}");
        }
        assert_eq!(code(b"{\"jsonrpc\":\"2.0\",\"method\":\"stop\"}"), RpcError::INVALID_REQUEST, "no id");
        assert_eq!(code(b"{\"jsonrpc\":\"2.0\",\"id\":[1],\"method\":\"stop\"}"), RpcError::INVALID_REQUEST);
        let twice = b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"stop\",\"params\":{\"all\":false,\"all\":true}}";
        assert_eq!(code(twice), RpcError::PARSE, "a name that occurs twice");
        let (id, _) = parse_call(b"{\"jsonrpc\":\"2.0\",\"id\":\"x\"}").expect_err("no method");
        assert_eq!(id, json!("x"), "the answer finds its caller");
    }

    #[test]
    fn another_version_is_refused_by_both_and_none_is_this_one() {
        let line = |version: &str| format!("{{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"status\"{version}}}");
        assert!(parse_call(line("").as_bytes()).is_ok() && parse_call(line(",\"version\":1").as_bytes()).is_ok());
        let (id, error) = parse_call(line(",\"version\":2").as_bytes()).expect_err("another version");
        assert_eq!((id, error.code), (json!(7), RpcError::VERSION));
        assert!(error.message.contains("version 2") && error.message.contains("speaks version 1"), "{error}");
        let answer = |version: &str| format!("{{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":true{version}}}");
        assert_eq!(parse_answer(answer("").as_bytes()).expect("this version"), Ok(json!(true)));
        let error = parse_answer(answer(",\"version\":2").as_bytes()).expect_err("another version");
        assert!(matches!(error, AnswerError::Version { found } if found == "2"));
    }
}
