//! Words that list members: a file or device, a folder, a pattern.
//! Owns: what each stands for. Not here: what is in the files (`probe`), a place that does not answer (the callers ask on
//! threads of their own).
//! Invariant: a word that names something is that thing, whatever letters it has.

use std::path::{Path, PathBuf};
use std::{fs, io};

/// What is at a place.
#[derive(Default)]
pub(crate) struct Place {
    /// The files and devices.
    pub(crate) names: Vec<String>,
    /// What of it cannot be looked at, and why.
    pub(crate) notes: Vec<(String, String)>,
    /// It is a file or device that the user names.
    pub(crate) is_given: bool,
}

/// What a word of the command line stands for.
pub(crate) fn expand(place: &str) -> Result<Place, glob::PatternError> {
    let is_there = Path::new(place).exists();
    if place.contains(['*', '?', '[']) && !is_there {
        return in_pattern(place);
    }
    if is_there && Path::new(place).is_dir() {
        return Ok(in_folder(Path::new(place)));
    }
    Ok(Place { names: vec![place.to_owned()], is_given: true, ..Place::default() })
}

fn in_pattern(pattern: &str) -> Result<Place, glob::PatternError> {
    let mut place = Place::default();
    // As a shell does it: no star stands for the dot of a hidden file.
    let options = glob::MatchOptions { require_literal_leading_dot: true, ..Default::default() };
    for found in glob::glob_with(pattern, options)? {
        match found {
            Ok(path) => place.names.push(path.display().to_string()),
            Err(error) => place.notes.push(unreadable(error.path(), error.error())),
        }
    }
    Ok(place)
}

/// What is in a folder and not hidden.
fn in_folder(folder: &Path) -> Place {
    let is_hidden = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
    let mut place = Place::default();
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) => {
            place.notes.push(unreadable(folder, &error));
            return place;
        }
    };
    for entry in entries {
        match entry {
            Ok(entry) if is_hidden(&entry.path()) => {}
            Ok(entry) => place.names.push(entry.path().display().to_string()),
            Err(error) => place.notes.push(unreadable(folder, &error)),
        }
    }
    place
}

fn unreadable(path: &Path, error: &io::Error) -> (String, String) {
    let name = path.display().to_string();
    let text = format!("{name}: {}: whether members are there is not known", uraid_host::io_text(error));
    (name, text)
}
