//! Records of the demonstration's session, and its picture.

use std::{
    fs::{self, File},
    io::{self, BufReader},
    path::{Path, PathBuf},
    time::Duration,
};

use kcp9::KcpHandle;

use super::{
    chart, options,
    qlog::{Recorder, Side, Trace},
};

/// Where the records of both ends are.
#[derive(Clone)]
pub(crate) struct Records {
    folder: PathBuf,
}

impl Records {
    /// `None` if nobody wants any. Those that are only drawn are made in the `temporary` folder.
    ///
    /// # Errors
    /// Those of making the folder.
    pub(crate) fn of(options: &options::Demo, temporary: &Path) -> io::Result<Option<Self>> {
        if let Some(folder) = &options.qlog {
            fs::create_dir_all(folder)?;
            return Ok(Some(Self { folder: folder.clone() }));
        }
        Ok(options.plot.as_ref().map(|_| Self { folder: temporary.to_owned() }))
    }

    /// Records the sending end.
    ///
    /// # Errors
    /// Those of making the file.
    pub(crate) fn sender(&self, session: KcpHandle) -> io::Result<Recorder> {
        sender(&self.path(SENDER), session)
    }

    /// Records the receiving end.
    ///
    /// # Errors
    /// Those of making the file.
    pub(crate) fn receiver(&self, session: KcpHandle) -> io::Result<Recorder> {
        Recorder::start(&self.path(RECEIVER), session, Side::Server, RECEIVER, INTERVAL)
    }

    /// Draws both.
    ///
    /// # Errors
    /// Those of reading the records and of writing the picture.
    pub(crate) fn draw(&self, plot: &Path, path: &str) -> io::Result<()> {
        let read = |name| Trace::read(BufReader::new(File::open(self.path(name))?));
        let traces = [read(SENDER)?, read(RECEIVER)?];
        let svg = chart::draw(&format!("A file over kcp9: {path}"), &traces).map_err(io::Error::other)?;
        fs::write(plot, svg)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.sqlog"))
    }
}

/// Records a sending end into the file at `path`.
///
/// # Errors
/// Those of making the file.
pub(crate) fn sender(path: &Path, session: KcpHandle) -> io::Result<Recorder> {
    Recorder::start(path, session, Side::Client, SENDER, INTERVAL)
}

const SENDER: &str = "sender";
const RECEIVER: &str = "receiver";
/// Between two samples.
const INTERVAL: Duration = Duration::from_millis(10);
