//! The control protocol: JSON-RPC 2.0, one object per line, both ways.
//! Owns: calls, answers and errors as lines. Not here: sockets (`control`, `client`), what the methods do (`serve`).
//! Invariant: any bytes on the socket become a call or an error answer, never a panic; a line is bounded.
//! Spec: www.jsonrpc.org/specification, without batches and notifications: a request without an id is refused.

pub mod pass_calls;
mod rpc_error;
mod strict_json;

pub use rpc_error::RpcError;

use crate::words::names;
use pass_calls::PassCall;
use serde_json::{Map, Value, json};
use uraid_format::bitmap::WRITE_BEHIND_MAX;
use uraid_format::{FlagChange, MemberFlag};

/// The most bytes of a request's line: an `add` of 384 members with paths of 4,096 bytes has 1.5 MiB.
pub const LINE_BYTES_MAX: usize = 4 << 20;

/// The most bytes of an answer's line: md has at most 1,920 members, and a path of 4,096 bytes is at most 24 KiB of
/// JSON.
pub const ANSWER_BYTES_MAX: usize = 64 << 20;

/// One request.
#[derive(Clone, PartialEq, Debug)]
pub struct Call {
    /// The id of the answer.
    pub id: Value,
    /// What is asked.
    pub method: Method,
}

/// The methods of a running array.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Method {
    /// Returns the array's report.
    Status,
    /// Declares members failed.
    Fail {
        /// The path or slot of each.
        members: Vec<String>,
    },
    /// Adds devices as spares.
    Add {
        /// In this order.
        members: Vec<NewDevice>,
        /// What they carry may be lost.
        force: bool,
    },
    /// Takes back devices that were members.
    ReAdd {
        /// The path of each.
        members: Vec<String>,
    },
    /// Removes spares and failed members.
    Remove {
        /// The path of each, the slot that it had, `failed` or `detached`.
        members: Vec<String>,
    },
    /// Copies members to spares, which then take their slots.
    Replace {
        /// The path or slot of each.
        members: Vec<String>,
        /// The path of the spare for each, in the same order; any for those behind the last.
        with: Vec<String>,
    },
    /// Gives members a flag, or takes it away. The method has the flag's name.
    SetFlag {
        /// The path or slot of each.
        members: Vec<String>,
        /// Which one.
        flag: MemberFlag,
        /// Whether they get it.
        is_set: bool,
    },
    /// Stops the array: drain, flush, mark clean, release the members.
    Stop {
        /// Also stop the other arrays of the same process.
        all: bool,
        /// Stop even if clients are connected that may write.
        force: bool,
    },
    /// Takes no more writes, or takes them again.
    Access {
        /// Whether it takes no more.
        is_read_only: bool,
    },
    /// Changes its bitmap.
    Bitmap(BitmapCall),
    /// About its passes.
    Passes(PassCall),
}

/// A device to add.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewDevice {
    /// Its path, absolute.
    pub path: String,
    /// The flags that it gets. A former member that returns to its slot keeps those that this does not name.
    pub flags: FlagChange,
}

impl NewDevice {
    /// The devices, each with what `flags` says at its place: `[{"write-mostly": true}, {}]`. `None`: it says something
    /// else. Without it they get no flags.
    fn parse_all(paths: Vec<String>, flags: Option<&Value>) -> Option<Vec<NewDevice>> {
        let none = vec![json!({}); paths.len()];
        let flags = match flags {
            None | Some(Value::Null) => &none,
            Some(value) => value.as_array().filter(|list| list.len() == paths.len())?,
        };
        let change = |value: &Value| {
            value.as_object()?.iter().try_fold(FlagChange::default(), |change, (name, is_set)| {
                Some(change.with(flag_called(name)?, is_set.as_bool()?))
            })
        };
        paths.into_iter().zip(flags).map(|(path, flags)| Some(NewDevice { path, flags: change(flags)? })).collect()
    }

    /// What `flags` says of the device.
    fn flags_param(&self) -> Value {
        let said = MemberFlag::ALL.into_iter().filter_map(|flag| Some((flag.name().to_owned(), self.flags.of(flag)?)));
        Value::Object(said.map(|(name, is_set)| (name, Value::Bool(is_set))).collect())
    }
}

/// A change of the write-intent bitmap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BitmapCall {
    /// The array gets one beside each superblock.
    Add {
        /// What a bit stands for; `None`: as mdadm chooses.
        chunk_sectors: Option<u64>,
        /// How many writes may be behind; 0: none.
        write_behind: u32,
    },
    /// The array loses it.
    Remove,
}

impl BitmapCall {
    fn parse<'a>(param: &impl Fn(&'static str) -> Option<&'a Value>) -> Option<BitmapCall> {
        let number = |name| match param(name).filter(|value| !value.is_null()) {
            Some(value) => value.as_u64().map(Some),
            None => Some(None),
        };
        let (chunk_sectors, behind) = (number("chunk_sectors")?, number("write_behind")?);
        match param("bitmap").and_then(Value::as_str)? {
            "internal" => {
                let write_behind =
                    u32::try_from(behind.unwrap_or(0)).ok().filter(|found| *found <= WRITE_BEHIND_MAX)?;
                Some(BitmapCall::Add { chunk_sectors, write_behind })
            }
            "none" if chunk_sectors.is_none() && behind.is_none() => Some(BitmapCall::Remove),
            _ => None,
        }
    }

    fn params(self) -> Value {
        match self {
            BitmapCall::Add { chunk_sectors, write_behind } => {
                json!({ "bitmap": "internal", "chunk_sectors": chunk_sectors, "write_behind": write_behind })
            }
            BitmapCall::Remove => json!({ "bitmap": "none" }),
        }
    }
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
    let method = match request.get("method").and_then(Value::as_str) {
        Some(name) => method_called(name, request.get("params")).map_err(|error| (answer_id.clone(), error))?,
        None => return fail(RpcError::INVALID_REQUEST, "no method"),
    };
    answerable(id).map(|id| Call { id, method }).or_else(|text| fail(RpcError::INVALID_REQUEST, text))
}

/// A method with its parameters. One that it does not know is refused: it would be one that the caller counts on.
fn method_called(name: &str, params: Option<&Value>) -> Result<Method, RpcError> {
    let invalid = |text: String| RpcError::new(RpcError::INVALID_PARAMS, text);
    let none = Map::new();
    let params = match params {
        None | Some(Value::Null) => &none,
        Some(Value::Object(params)) => params,
        Some(_) => return Err(invalid("\"params\" is an object".to_owned())),
    };
    let param = |name| params.get(name);
    let switch = |name: &'static str, or: bool| match param(name) {
        None | Some(Value::Null) => Ok(or),
        Some(value) => value.as_bool().ok_or_else(|| invalid(format!("\"{name}\" is true or false"))),
    };
    let members = || {
        let text =
            format!("{name} takes {{\"members\": [\"path or slot\", ...]}}, or {{\"member\": \"path or slot\"}}");
        members(&param).ok_or_else(|| invalid(text))
    };
    let method = match name {
        "status" => Method::Status,
        "stop" => Method::Stop { all: switch("all", false)?, force: switch("force", false)? },
        "readonly" => Method::Access { is_read_only: true },
        "readwrite" => Method::Access { is_read_only: false },
        "fail" => Method::Fail { members: members()? },
        "add" => {
            let text = "\"flags\" has an object for each member: {\"write-mostly\": true or false, \"failfast\": true or \
                        false}, or {}";
            let members = NewDevice::parse_all(members()?, param("flags")).ok_or_else(|| invalid(text.to_owned()))?;
            Method::Add { members, force: switch("force", false)? }
        }
        "re-add" => Method::ReAdd { members: members()? },
        "remove" => Method::Remove { members: members()? },
        "replace" => {
            let with = with(&param).ok_or_else(|| invalid("\"with\" is a list of paths".to_owned()))?;
            Method::Replace { members: members()?, with }
        }
        "bitmap" => {
            let text = "bitmap takes {\"bitmap\": \"internal\", \"chunk_sectors\": sectors or null, \
                        \"write_behind\": 0 to 16383 or null}, or {\"bitmap\": \"none\"}";
            Method::Bitmap(BitmapCall::parse(&param).ok_or_else(|| invalid(text.to_owned()))?)
        }
        name => match (flag_called(name), PassCall::parse(name, &param)) {
            (Some(flag), _) => Method::SetFlag { members: members()?, flag, is_set: switch("set", true)? },
            (None, Some(call)) => Method::Passes(call.map_err(pass_calls::invalid)?),
            (None, None) => {
                let text = format!(
                    "no such method, expected status, fail, add, re-add, remove, replace, write-mostly, failfast, bitmap, \
                     readonly, readwrite, stop, {}",
                    PassCall::NAMES
                );
                return Err(RpcError::new(RpcError::METHOD_NOT_FOUND, text));
            }
        },
    };
    let (_, known) = words(&method);
    // One member needs no list.
    let is_known = |name: &str| known.get(name).is_some() || name == "member" && known.get("members").is_some();
    match params.keys().find(|name| !is_known(name)) {
        Some(unknown) => Err(invalid(format!("{name} takes no \"{}\"", names::printable(unknown)))),
        None => Ok(method),
    }
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

/// The members that a request names, of which there is at least one: a list, or one by itself.
fn members<'a>(param: &impl Fn(&'static str) -> Option<&'a Value>) -> Option<Vec<String>> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let members = match (param("members").and_then(Value::as_array), param("member")) {
        (Some(members), None) => members.iter().map(text).collect::<Option<Vec<String>>>()?,
        (None, Some(member)) => vec![text(member)?],
        (Some(_), Some(_)) | (None, None) => return None,
    };
    (!members.is_empty()).then_some(members)
}

fn flag_called(name: &str) -> Option<MemberFlag> {
    MemberFlag::ALL.into_iter().find(|flag| flag.name() == name)
}

/// The spares that a request names, if any.
fn with<'a>(param: &impl Fn(&'static str) -> Option<&'a Value>) -> Option<Vec<String>> {
    match param("with") {
        None | Some(Value::Null) => Some(Vec::new()),
        Some(value) => value.as_array()?.iter().map(|value| value.as_str().map(str::to_owned)).collect(),
    }
}

/// A request as a line, with its end.
pub fn call_line(method: &Method) -> String {
    let (name, params) = words(method);
    format!("{}\n", json!({ "jsonrpc": "2.0", "id": 1, "method": name, "params": params }))
}

/// The name of a method, and all parameters that it takes.
fn words(method: &Method) -> (&'static str, Value) {
    match method {
        Method::Status => ("status", json!({})),
        Method::Fail { members } => ("fail", json!({ "members": members })),
        Method::Add { members, force } => {
            let paths: Vec<&str> = members.iter().map(|member| member.path.as_str()).collect();
            let flags: Vec<Value> = members.iter().map(NewDevice::flags_param).collect();
            ("add", json!({ "members": paths, "flags": flags, "force": force }))
        }
        Method::ReAdd { members } => ("re-add", json!({ "members": members })),
        Method::Remove { members } => ("remove", json!({ "members": members })),
        Method::Replace { members, with } => ("replace", json!({ "members": members, "with": with })),
        Method::SetFlag { members, flag, is_set } => (flag.name(), json!({ "members": members, "set": is_set })),
        Method::Access { is_read_only: true } => ("readonly", json!({})),
        Method::Access { is_read_only: false } => ("readwrite", json!({})),
        Method::Stop { all, force } => ("stop", json!({ "all": all, "force": force })),
        Method::Bitmap(call) => ("bitmap", call.params()),
        Method::Passes(call) => call.line(),
    }
}

/// An answer as a line, with its end.
pub fn answer_line(id: &Value, outcome: Result<Value, RpcError>) -> String {
    let answer = match outcome {
        Ok(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
        Err(error) => {
            json!({ "jsonrpc": "2.0", "id": id, "error": { "code": error.code, "message": error.message } })
        }
    };
    format!("{answer}\n")
}

/// Reads an answer. The outer error: these bytes are not an answer.
pub fn parse_answer(line: &[u8]) -> Result<Result<Value, RpcError>, serde_json::Error> {
    let mut value: Value = serde_json::from_slice(line)?;
    if let Some(error) = value.get("error") {
        let code = error.get("code").and_then(Value::as_i64).unwrap_or(RpcError::REFUSED);
        let message = error.get("message").and_then(Value::as_str).unwrap_or("an error without a message");
        return Ok(Err(RpcError::new(code, message)));
    }
    Ok(Ok(value.get_mut("result").map(Value::take).unwrap_or(Value::Null)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_and_answers_survive_the_way() {
        let fail = Method::Fail { members: vec!["disk \"2\"\n".to_owned(), "3".to_owned()] };
        for method in
            [Method::Status, Method::Stop { all: false, force: true }, Method::Stop { all: true, force: false }, fail]
        {
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
        for call in chunks.into_iter().chain([BitmapCall::Remove]) {
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
        let method = Method::Add { members, force: true };
        assert_eq!(parse_call(call_line(&method).as_bytes()).expect("a call").method, method);
        let parsed = |flags: &str| {
            let params = format!("{{\"members\":[\"a\"],\"flags\":{flags}}}");
            let line = format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"add\",\"params\":{params}}}");
            parse_call(line.as_bytes()).map(|call| call.method).map_err(|(_, error)| error.code)
        };
        let plain = Method::Add { members: vec![device("a", FlagChange::default())], force: false };
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

    /// Every method, as a program sends it: the examples of docs/control-protocol.md, in their order.
    #[test]
    fn the_documented_examples_are_what_is_sent_and_understood() {
        let text = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<String>>();
        let device = |path: &str, flags| NewDevice { path: path.to_owned(), flags };
        let flags = FlagChange::default().with(MemberFlag::WriteMostly, true).with(MemberFlag::FailFast, false);
        let members = vec![device("/dev/sdb", flags), device("/dev/sdc", FlagChange::default())];
        let set_flag = |flag, is_set| Method::SetFlag { members: text(&["1"]), flag, is_set };
        let sent = [
            Method::Status,
            Method::Fail { members: text(&["/dev/sdb", "3"]) },
            Method::Add { members, force: false },
            Method::ReAdd { members: text(&["/dev/sdb"]) },
            Method::Remove { members: text(&["failed"]) },
            Method::Replace { members: text(&["0"]), with: text(&["/dev/sdd"]) },
            set_flag(MemberFlag::WriteMostly, true),
            set_flag(MemberFlag::FailFast, false),
            Method::Bitmap(BitmapCall::Add { chunk_sectors: Some(131_072), write_behind: 0 }),
            Method::Bitmap(BitmapCall::Remove),
            Method::Passes(PassCall::Check),
            Method::Passes(PassCall::Repair),
            Method::Passes(PassCall::Idle),
            Method::Passes(PassCall::Freeze),
            Method::Passes(PassCall::Unfreeze),
            Method::Passes(PassCall::Speed { min: Some(1000), max: None }),
            Method::Passes(PassCall::Mismatches),
            Method::Access { is_read_only: true },
            Method::Access { is_read_only: false },
            Method::Stop { all: false, force: false },
        ];
        let page = include_str!("../../../../docs/control-protocol.md");
        let documented: Vec<&str> =
            page.lines().filter(|line| line.starts_with("{\"id\":1,\"jsonrpc\":\"2.0\",\"method\"")).collect();
        let lines: Vec<String> = sent.iter().map(|method| call_line(method).trim_end().to_owned()).collect();
        assert_eq!(lines, documented);
        for (line, method) in lines.iter().zip(sent) {
            assert_eq!(parse_call(line.as_bytes()), Ok(Call { id: json!(1), method }), "{line}");
        }
    }
}
