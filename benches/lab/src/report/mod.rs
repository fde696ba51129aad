//! The table and the charts of results.

mod charts;
mod draw;
mod table;

use std::{fs, io, path::Path};

use crate::results::Record;

/// Writes `table.md` and the charts beside the results.
pub(crate) fn write(records: &[Record], folder: &Path) -> io::Result<()> {
    let mut text = table::markdown(records);
    for section in charts::all(records) {
        text += &format!("\n## {}\n\n", section.title);
        for (file, chart) in section.charts {
            chart.draw(&folder.join(&file)).map_err(|error| io::Error::other(format!("{file}: {error}")))?;
            text += &format!("![{file}]({file})\n");
        }
    }
    let path = folder.join("table.md");
    fs::write(&path, text)?;
    println!("{}", path.display());
    Ok(())
}
