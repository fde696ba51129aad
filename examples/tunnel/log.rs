//! Messages for people, each with its time, on stderr or in a file.

use std::{
    fmt,
    fs::OpenOptions,
    io::{self, Write},
    sync::{Mutex, PoisonError},
};

use jiff::ZonedDateTime;

/// Where messages go. `None` for stderr.
static OUTPUT: Mutex<Option<Box<dyn Write + Send>>> = Mutex::new(None);

/// Appends the messages from here on to the file at `path`.
pub(crate) fn to_file(path: &str) -> io::Result<()> {
    let file = OpenOptions::new().create(true).append(true).open(path)?;
    *OUTPUT.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(file));
    Ok(())
}

/// One message. That it cannot be written is nothing to end a tunnel for.
pub(crate) fn line(message: fmt::Arguments<'_>) {
    let line = format!("{} {message}\n", ZonedDateTime::now().strftime("%Y/%m/%d %H:%M:%S"));
    let mut output = OUTPUT.lock().unwrap_or_else(PoisonError::into_inner);
    let _ = match &mut *output {
        Some(output) => output.write_all(line.as_bytes()),
        None => io::stderr().write_all(line.as_bytes()),
    };
}

/// Says something, in the words of `format!`.
macro_rules! say {
    ($($words:tt)*) => { $crate::log::line(format_args!($($words)*)) };
}
pub(crate) use say;
