//! Names of files in messages: relative, with `/` between components, and harmless on every system.
//!
//! The sender makes a [`RelativeName`] from a local path. The receiver parses the name in the message and trusts nothing.

use std::{fmt, path::Path, path::PathBuf};

/// End of the names of unfinished files, which no sender may choose.
pub(crate) const PART_SUFFIX: &str = ".kcp9-part";

/// A relative path that cannot leave the directory it is joined to, nor name anything but a file in it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct RelativeName(String);

impl RelativeName {
    /// Takes a name from the network.
    pub(crate) fn parse(name: &str) -> Result<Self, NameError> {
        if name.len() > MAX_NAME {
            return Err(NameError("is too long"));
        }
        if name.split('/').count() > MAX_DEPTH {
            return Err(NameError("has too many folders"));
        }
        name.split('/').try_for_each(check_component)?;
        Ok(Self(name.to_owned()))
    }

    /// The name under which a local file is sent: the last `depth` components of its path.
    pub(crate) fn of_path(path: &Path, depth: usize) -> Result<Self, NameError> {
        let count = path.components().count();
        let mut name = String::new();
        for component in path.components().skip(count.saturating_sub(depth)) {
            if !name.is_empty() {
                name.push('/');
            }
            name.push_str(component.as_os_str().to_str().ok_or(NameError("is not valid Unicode"))?);
        }
        Self::parse(&name)
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// The folders, outermost first.
    pub(crate) fn folders(&self) -> impl Iterator<Item = &str> {
        let (folders, _) = self.0.rsplit_once('/').unwrap_or(("", &self.0));
        folders.split('/').filter(|folder| !folder.is_empty())
    }

    /// The last component.
    pub(crate) fn file_name(&self) -> &str {
        self.0.rsplit_once('/').map_or(&*self.0, |(_, file)| file)
    }

    /// The path of the file below `root`.
    pub(crate) fn below(&self, root: &Path) -> PathBuf {
        self.0.split('/').fold(root.to_path_buf(), |path, component| path.join(component))
    }
}

impl fmt::Display for RelativeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why a name is refused, as the end of a sentence that starts with "the name".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NameError(&'static str);

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the name {}", self.0)
    }
}

/// `text` with everything that could act on a terminal replaced.
pub(crate) fn printable(text: &str) -> String {
    text.chars().map(|c| if is_deceptive(c) { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

fn check_component(component: &str) -> Result<(), NameError> {
    let bytes = component.as_bytes();
    let refuse = |reason| Err(NameError(reason));
    if component.is_empty() {
        return refuse("is empty, absolute or has an empty component");
    }
    if component == "." || component == ".." {
        return refuse("has a component . or ..");
    }
    if component.len() > MAX_COMPONENT {
        return refuse("has a component of more than 255 bytes");
    }
    if component.contains('\\') {
        return refuse("has a backslash");
    }
    if component.chars().any(is_deceptive) {
        return refuse("has a control character");
    }
    if bytes.len() >= 2 && bytes[0].is_ascii_alphabetic() && bytes[1] == b':' {
        return refuse("starts with a drive letter");
    }
    if is_device(component) {
        return refuse("is that of a device on Windows");
    }
    if bytes.len() >= PART_SUFFIX.len()
        && bytes[bytes.len() - PART_SUFFIX.len()..].eq_ignore_ascii_case(PART_SUFFIX.as_bytes())
    {
        return refuse("is kept for unfinished files");
    }
    if cfg!(windows)
        && (component.contains(['<', '>', ':', '"', '|', '?', '*']) || component.ends_with(['.', ' ']))
    {
        return refuse("is not allowed on Windows");
    }
    Ok(())
}

/// Control characters, and those that change the direction of the text around them.
fn is_deceptive(c: char) -> bool {
    c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{2028}' | '\u{2029}')
}

/// Names that Windows gives to devices, whatever their extension.
fn is_device(component: &str) -> bool {
    let stem = component.split('.').next().unwrap_or(component).trim_end().to_uppercase();
    let numbered = |prefix| {
        let rest: Option<&str> = stem.strip_prefix(prefix);
        rest.is_some_and(|n| {
            matches!(n, "1" | "2" | "3" | "4" | "5" | "6" | "7" | "8" | "9" | "¹" | "²" | "³")
        })
    };
    matches!(&*stem, "CON" | "PRN" | "AUX" | "NUL" | "CONIN$" | "CONOUT$")
        || numbered("COM")
        || numbered("LPT")
}

/// Linux's `PATH_MAX`, less room for the directory it is joined to.
const MAX_NAME: usize = 3_072;
/// The limit of common file systems.
const MAX_COMPONENT: usize = 255;
/// More folders than people use, and few enough to check one by one.
const MAX_DEPTH: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_names_pass() {
        for name in [
            "a",
            "a b.txt",
            "grüße – 你好.tar.gz",
            ".hidden",
            "...",
            "a/b/c",
            "console",
            "common.txt",
            "COM0",
            "12:30",
            &"x".repeat(255),
        ] {
            assert_eq!(RelativeName::parse(name).unwrap().as_str(), name);
        }
    }

    #[test]
    fn tricks_are_refused() {
        for name in [
            "",
            "/",
            "/etc/passwd",
            "//host/share",
            "a/",
            "a//b",
            ".",
            "..",
            "../a",
            "a/../../b",
            "a/./b",
            "a\\b",
            "..\\a",
            "\\\\host\\share",
            "C:",
            "C:a",
            "c:/a",
            "a/d:x",
            "a\0b",
            "a\nb",
            "\u{1b}[2J",
            "gpj.\u{202e}exe",
            "NUL",
            "nul.txt",
            "a/Con",
            "con .x",
            "COM1",
            "lpt9.tar.gz",
            "com¹",
            "CONOUT$",
            ".x.kcp9-part",
            "x.KCP9-PART",
            &"x".repeat(256),
            &"x/".repeat(64),
            &"xxxx/".repeat(1_000),
        ] {
            assert!(RelativeName::parse(name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn a_path_gives_only_its_end() {
        let path = Path::new("/tmp/some/where/file name");
        assert_eq!(RelativeName::of_path(path, 1).unwrap().as_str(), "file name");
        assert_eq!(RelativeName::of_path(path, 2).unwrap().as_str(), "where/file name");
        assert!(RelativeName::of_path(Path::new(".."), 1).is_err());
    }

    #[test]
    fn a_name_stays_below_its_root() {
        let name = RelativeName::parse("a/b/c.txt").unwrap();
        assert_eq!(name.below(Path::new("/root")), Path::new("/root/a/b/c.txt"));
        assert_eq!(name.folders().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(name.file_name(), "c.txt");
        let flat = RelativeName::parse("c.txt").unwrap();
        assert_eq!((flat.folders().count(), flat.file_name()), (0, "c.txt"));
    }

    #[test]
    fn printing_replaces_control_characters() {
        assert_eq!(printable("a\u{1b}[2Jb\n"), "a\u{fffd}[2Jb\u{fffd}");
    }
}
