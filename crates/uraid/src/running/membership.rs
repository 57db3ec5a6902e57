//! `uraid add`, `re-add`, `remove`, `replace`, `write-mostly` and `failfast`: asks a running array.
//! Owns: the call and the line about it. Not here: what the array does (`overseer::membership`).

use crate::cli::{AddArgs, FlagArgs, MembersArgs, ReAddArgs, RemoveArgs, ReplaceArgs};
use crate::running::words;
use serde_json::Value;
use uraid_control::client::{self, Client, ClientError};
use uraid_control::log::print;
use uraid_control::protocol::Method;
use uraid_format::MemberFlag;

/// Adds devices to a running array.
pub(crate) fn add(args: &AddArgs) -> Result<(), ClientError> {
    let flags = |members: &[String]| args.flags.0[args.flags.0.len() - members.len()..].to_vec();
    change("add", &args.named, "added to", |client, members| client.add(members, &flags(members), args.force))
}

/// Takes back former members.
pub(crate) fn re_add(args: &ReAddArgs) -> Result<(), ClientError> {
    change("re-add", &args.named, "re-added to", Client::re_add)
}

/// Removes spares and failed members.
pub(crate) fn remove(args: &RemoveArgs) -> Result<(), ClientError> {
    change("remove", &args.named, "removed from", Client::remove)
}

fn change(
    command: &str,
    named: &MembersArgs,
    done: &str,
    call: impl FnOnce(&mut Client, &[String]) -> Result<Value, ClientError>,
) -> Result<(), ClientError> {
    let (array, members) = named.array_and_members(command);
    let answer = client::find(array, named.control.as_deref()).and_then(|mut client| call(&mut client, members));
    let answer = answer.map_err(|error| words::explained(command, array, members, error))?;
    let changed = list(&answer, "members");
    let (array, slots) = (text(answer.get("array")), text(answer.get("slots")));
    match changed.is_empty() {
        // `failed`, `detached` or `missing`.
        true => print(&format!("{array}: no member is {}, {slots}\n", members.join(" or "))),
        false => print(&format!("{}: {done} {array}, {slots}\n", changed.join(", "))),
    }
    Ok(())
}

/// Makes members write-mostly, or no longer.
pub(crate) fn write_mostly(args: &FlagArgs) -> Result<(), ClientError> {
    let done = if args.clear { "read like the others in" } else { "write-mostly in" };
    set_flag(args, MemberFlag::WriteMostly, done)
}

/// Makes members failfast, or no longer.
pub(crate) fn failfast(args: &FlagArgs) -> Result<(), ClientError> {
    let done = if args.clear { "not failfast in" } else { "failfast in" };
    set_flag(args, MemberFlag::FailFast, done)
}

fn set_flag(args: &FlagArgs, flag: MemberFlag, done: &str) -> Result<(), ClientError> {
    change(flag.name(), &args.named, done, |client, members| {
        client.call(&Method::set_flag(flag, found_by_server(members), !args.clear))
    })
}

/// Begins to copy members to spares.
pub(crate) fn replace(args: &ReplaceArgs) -> Result<(), ClientError> {
    let (array, members) = args.named.array_and_members("replace");
    let control = args.named.control.as_deref();
    let answer = client::find(array, control).and_then(|mut client| {
        client.call(&Method::Replace { members: found_by_server(members), with: found_by_server(&args.with) })
    });
    let answer = answer.map_err(|error| words::explained("replace", array, members, error))?;
    let array = text(answer.get("array"));
    for (member, spare) in list(&answer, "members").into_iter().zip(list(&answer, "with")) {
        print(&format!("{member}: is copied to {spare}; `uraid wait {array}` waits for the end\n"));
    }
    Ok(())
}

fn found_by_server(members: &[String]) -> Vec<String> {
    members.iter().map(|member| client::path_or_slot(member)).collect()
}

fn text(value: Option<&Value>) -> String {
    value.and_then(Value::as_str).unwrap_or("?").to_owned()
}

fn list(answer: &Value, name: &str) -> Vec<String> {
    answer.get(name).and_then(Value::as_array).into_iter().flatten().map(|value| text(Some(value))).collect()
}
