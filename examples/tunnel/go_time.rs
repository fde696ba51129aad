//! Go's time layouts, as far as file names have them: the reference time Mon Jan 2 15:04:05 2006, written as the time is to be.

use jiff::{ZonedDateTime, fmt::strtime};

/// `layout` with the parts of the reference time replaced by those of `time`.
pub(crate) fn format(layout: &str, time: &ZonedDateTime) -> String {
    let mut out = String::new();
    let mut rest = layout;
    while let Some(next) = rest.chars().next() {
        let part =
            PARTS.iter().find(|(name, _)| rest.strip_prefix(name).is_some_and(|after| is_whole(name, after)));
        let skip = match part {
            Some((name, directive)) => {
                // None of these fails for a time of this century.
                out.push_str(&strtime::format(directive, time).unwrap_or_default());
                name.len()
            }
            None => {
                out.push(next);
                next.len_utf8()
            }
        };
        rest = &rest[skip..];
    }
    out
}

/// Go takes `Jan` and `Mon` for parts only where no small letter follows: `Month` is a word.
fn is_whole(name: &str, after: &str) -> bool {
    !matches!(name, "Jan" | "Mon") || !after.starts_with(|next: char| next.is_ascii_lowercase())
}

/// Go's parts, and those of `strftime`. Where one begins as another does, the longer one comes first.
const PARTS: [(&str, &str); 24] = [
    ("January", "%B"),
    ("Jan", "%b"),
    ("Monday", "%A"),
    ("Mon", "%a"),
    ("MST", "%Z"),
    ("2006", "%Y"),
    ("-07:00", "%:z"),
    ("-0700", "%z"),
    ("002", "%j"),
    ("01", "%m"),
    ("02", "%d"),
    ("03", "%I"),
    ("04", "%M"),
    ("05", "%S"),
    ("06", "%y"),
    ("15", "%H"),
    ("PM", "%p"),
    ("pm", "%P"),
    ("_2", "%e"),
    ("1", "%-m"),
    ("2", "%-d"),
    ("3", "%-I"),
    ("4", "%-M"),
    ("5", "%-S"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_are_gos() {
        let time: ZonedDateTime = "2026-03-09T07:08:04[UTC]".parse().unwrap();
        for (layout, expected) in [
            ("snmp-20060102.log", "snmp-20260309.log"),
            ("snmp.log", "snmp.log"),
            ("2006-01-02T15:04:05-0700", "2026-03-09T07:08:04+0000"),
            ("Mon Jan _2 2006", "Mon Mar  9 2026"),
            ("Monday, January 2, 06 3:04PM", "Monday, March 9, 26 7:08AM"),
            ("Months-Janus", "Months-Janus"),
            ("é 1.2", "é 3.9"),
        ] {
            assert_eq!(format(layout, &time), expected);
        }
    }
}
