//! The image for containers: the program, and nothing else.
//! Owns: the image's layout, its configuration. Not here: archives (`archive`).
//! Invariant: every blob lies under its own digest. Spec: the OCI image format, image-layout.md, manifest.md, config.md.

use super::archive::{gzip, sha256, tar};
use super::tree::Tree;
use super::{Release, read};
use crate::project;
use std::path::{Path, PathBuf};

/// Writes `uraid-VERSION-ARCHITECTURE.oci.tar`.
pub(super) fn write(release: &Release, program: &Path) -> Result<PathBuf, String> {
    let mut root = Tree::default();
    root.copy("usr/bin/uraid", program, 0o755)?;
    root.link("usr/bin/mdadm", "uraid");
    // The runtime directory, and where members and state are mounted.
    root.file("run/uraid/.keep", "", 0o600);
    root.file("var/lib/uraid/.keep", "", 0o600);
    root.file("etc/passwd", "root:x:0:0:root:/root:/usr/bin/uraid\n", 0o644);
    let layer = tar(&root, "", release.time);
    let (layer_digest, packed) = (sha256(&layer)?, gzip(&layer)?);
    let time = time(release.time);
    let config = read(&project::root().join("contrib/oci/config.json"))?
        .replace("@ARCHITECTURE@", release.architecture)
        .replace("@CREATED@", &time)
        .replace("@VERSION@", &release.version)
        .replace("@LAYER@", &layer_digest);
    let config: serde_json::Value = serde_json::from_str(&config).map_err(|error| format!("config.json: {error}"))?;
    let (packed_size, packed_digest) = (packed.len(), sha256(&packed)?);
    let mut image = Tree::default();
    image.file(&blob(&packed_digest), packed, 0o644);
    let config = add(&mut image, &config)?;
    let manifest = serde_json::json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": descriptor("application/vnd.oci.image.config.v1+json", &config),
        "layers": [descriptor("application/vnd.oci.image.layer.v1.tar+gzip", &(packed_digest, packed_size))],
    });
    let manifest = add(&mut image, &manifest)?;
    let mut entry = descriptor("application/vnd.oci.image.manifest.v1+json", &manifest);
    entry["platform"] = serde_json::json!({ "architecture": release.architecture, "os": "linux" });
    entry["annotations"] = serde_json::json!({ "org.opencontainers.image.ref.name": release.version });
    let index = serde_json::json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [entry],
    });
    image.file("index.json", index.to_string(), 0o644);
    image.file("oci-layout", "{\"imageLayoutVersion\":\"1.0.0\"}", 0o644);
    let path = release.folder.join(format!("uraid-{}-{}.oci.tar", release.version, release.architecture));
    std::fs::write(&path, tar(&image, "", release.time)).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(path)
}

fn blob(digest: &str) -> String {
    format!("blobs/sha256/{digest}")
}

/// Adds a blob; its digest and size.
fn add(image: &mut Tree, value: &serde_json::Value) -> Result<(String, usize), String> {
    let text = value.to_string();
    let digest = sha256(text.as_bytes())?;
    image.file(&blob(&digest), text.as_bytes(), 0o644);
    Ok((digest, text.len()))
}

fn descriptor(media_type: &str, (digest, size): &(String, usize)) -> serde_json::Value {
    serde_json::json!({ "mediaType": media_type, "digest": format!("sha256:{digest}"), "size": size })
}

/// `2026-11-30T18:00:00Z`
fn time(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Days since the 1st of March of the year 0: a year then ends with its leap day.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let (day, month) = (of_year - (153 * month + 2) / 5 + 1, if month < 10 { month + 3 } else { month - 9 });
    let year = era * 400 + year + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", rest / 3600, rest / 60 % 60, rest % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_as_calendars_have_them() {
        assert_eq!(time(0), "1970-01-01T00:00:00Z");
        assert_eq!(time(951_782_399), "2000-02-28T23:59:59Z");
        assert_eq!(time(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(time(1_796_083_199), "2026-11-30T23:59:59Z");
    }
}
