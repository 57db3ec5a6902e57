//! `uraid detail`, `fail` and `stop`: a running array asked, or its members read.
//! Owns: whom to ask, the report of an array that does not run. Not here: which members make it up
//! (`engine::assemble`). Invariant: nothing is changed on the members of an array that does not run.

use crate::assembly;
use crate::cli::{DetailArgs, FailArgs, StopArgs};
use crate::client::{self, ClientError};
use crate::names;
use crate::print;
use crate::probe::{ProbeError, probe};
use crate::report::{LeftOut, Member, Report};
use std::path::Path;
use uraid_engine::{AssembleError, AssembleOptions, Candidate, Place, StartPlan, assemble};
use uraid_format::{Role, Superblock, uuid};
use uraid_layout::layout_name;

/// Why there is nothing to show.
#[derive(Debug, thiserror::Error)]
pub enum DetailError {
    /// No server, and no members.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// None of the members has a superblock.
    #[error(transparent)]
    Probe(#[from] ProbeError),
    /// The members make up no array.
    #[error("the array does not run and could not be started")]
    Assemble(#[from] AssembleError),
}

/// Prints the state of an array.
pub fn detail(args: &DetailArgs) -> Result<(), DetailError> {
    let report = find_report(args)?;
    print(&if args.json { format!("{}\n", serde_json::json!(report)) } else { report.text() });
    Ok(())
}

fn find_report(args: &DetailArgs) -> Result<Report, DetailError> {
    let first = args.array.first().map(String::as_str);
    let are_members = args.array.len() > 1 || first.is_some_and(crate::member_name::exists);
    match client::find(first, args.control.as_deref()) {
        Ok(mut client) => Ok(client.status()?),
        Err(ClientError::NotRunning { .. }) if are_members => from_members(&args.array),
        Err(error) => Err(error.into()),
    }
}

fn from_members(members: &[String]) -> Result<Report, DetailError> {
    let mut names = Vec::new();
    let mut candidates = Vec::new();
    let mut first_error = None;
    for name in members {
        match probe(Path::new(name)) {
            Ok(found) => {
                names.push(name.clone());
                candidates.push(Candidate { superblock: found.superblock, device_size: found.size });
            }
            Err(error) if members.len() > 1 => {
                crate::complain(&error);
                first_error.get_or_insert(error);
            }
            Err(error) => return Err(error.into()),
        }
    }
    if let Some(error) = first_error.filter(|_| candidates.is_empty()) {
        return Err(error.into());
    }
    let options = AssembleOptions { force: false, run: true, read_only: true };
    let plan = assembly::decide(&candidates, &names, &options)?;
    let mut report = report_of(&plan, &names);
    // What `serve` would say without options; what is shown above allows all that changes nothing.
    let as_served = assemble(&candidates, &AssembleOptions::default());
    report.refusal = as_served.err().map(|error| error.named(&|at| names[at].clone()).to_string());
    Ok(report)
}

/// The report of an array as its members tell it.
pub fn report_of(plan: &StartPlan, names: &[String]) -> Report {
    let template = &plan.template;
    let layout = &plan.layout;
    let mut state = vec![if plan.is_dirty { "active" } else { "clean" }.to_owned()];
    if !plan.missing.is_empty() {
        state.push("degraded".to_owned());
    }
    state.push("Not Started".to_owned());
    let mut members: Vec<Member> = plan
        .members
        .iter()
        .map(|member| {
            let (slot, state) = match member.place {
                Place::Slot(slot) => (Some(slot.0), "active sync"),
                Place::Spare => (None, "spare"),
            };
            let (number, path) = (Some(member.superblock.dev_number), client::member_path(&names[member.candidate]));
            Member { number, slot, state: state.to_owned(), path: Some(path), reason: None }
        })
        .collect();
    members.extend(plan.missing.iter().map(|slot| {
        // A slot that the freshest superblock counts on has a member somewhere: not given, or one of those left out.
        let is_counted_on = template.roles.contains(&Role::Slot(slot));
        let state = match (is_counted_on, plan.refused.is_empty()) {
            (true, true) => "not given".to_owned(),
            (true, false) => "missing".to_owned(),
            (false, _) => "removed".to_owned(),
        };
        Member { state, ..Member::removed(slot.0) }
    }));
    members.sort_by_key(Member::order);
    let left_out = plan
        .refused
        .iter()
        .map(|refused| LeftOut { path: names[refused.candidate].clone(), reason: refused.reason.to_string() });
    Report { state, members, left_out: left_out.collect(), ..shape_of(template, layout) }
}

/// What never changes of an array.
pub fn shape_of(template: &Superblock, layout: &uraid_layout::Layout) -> Report {
    let set_name = template.set_name.as_str().into_owned();
    let level = layout.level();
    Report {
        name: names::short_name(&set_name, &template.set_uuid),
        set_name,
        uuid: uuid::text(&template.set_uuid),
        metadata: template.version.name().to_owned(),
        level: level.name().to_owned(),
        layout: Some(layout_name(level, layout.spec().layout)).filter(|name| !name.is_empty()),
        chunk_sectors: layout.chunk().0,
        array_sectors: layout.array_size().0,
        member_sectors: template.size.0,
        raid_devices: layout.slots(),
        state: Vec::new(),
        created: template.created_seconds(),
        updated: template.updated_seconds(),
        events: template.events,
        resync: None,
        members: Vec::new(),
        server: None,
        counts: None,
        left_out: Vec::new(),
        refusal: None,
    }
}

/// Declares a member of a running array failed.
pub fn fail(args: &FailArgs) -> Result<(), ClientError> {
    let (array, member) = args.array_and_member();
    let mut client = client::find(array, args.control.as_deref())?;
    let answer = client.fail(&client::member_argument(member))?;
    let text = |key: &str| answer.get(key).and_then(|value| value.as_str()).unwrap_or("?").to_owned();
    print(&format!("{}: set faulty in {}, {}\n", text("member"), text("array"), text("slots")));
    Ok(())
}

/// Stops a running array.
pub fn stop(args: &StopArgs) -> Result<(), ClientError> {
    let mut client = client::find(args.array.first().map(String::as_str), args.control.as_deref())?;
    let name = client.status()?.name;
    client.stop(args.all)?;
    print(&format!("{name}: stopped\n"));
    Ok(())
}
