//! The files to send: which they are, and reading them in the background.

use std::{
    collections::HashSet,
    fs::{self, File, Metadata},
    io::{self, Read, Seek, SeekFrom},
    path::{Path, PathBuf},
    time::SystemTime,
};

use sha2::{Digest, Sha256};
use tokio::sync::mpsc;

use super::{
    names::{RelativeName, printable},
    protocol::{HEADER, Hash, MAX_BODY, data_header, digest},
    store::hash_up_to,
};

/// A file to send, and the name that it travels under.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) path: PathBuf,
    pub(crate) name: RelativeName,
}

/// The files that the arguments name. A folder means everything in it, under the folder's name, without links. The errors name
/// what cannot be sent.
pub(crate) fn list(arguments: &[PathBuf]) -> (Vec<Source>, Vec<String>) {
    let mut found = Listing::default();
    for argument in arguments {
        found.add_argument(argument);
    }
    (found.sources, found.errors)
}

#[derive(Default)]
struct Listing {
    sources: Vec<Source>,
    errors: Vec<String>,
    names: HashSet<RelativeName>,
}

impl Listing {
    fn add_argument(&mut self, path: &Path) {
        match fs::metadata(path) {
            // Gives `.` and `..` the name that they stand for.
            Ok(metadata) if metadata.is_dir() => match path.canonicalize() {
                Ok(path) => self.add_folder(&path, 1),
                Err(error) => self.fail(path, &error),
            },
            Ok(_) => self.add_file(path, 1),
            Err(error) => self.fail(path, &error),
        }
    }

    fn add_folder(&mut self, path: &Path, depth: usize) {
        let entries = fs::read_dir(path).and_then(Iterator::collect::<io::Result<Vec<_>>>);
        let mut entries = match entries {
            Ok(entries) => entries,
            Err(error) => return self.fail(path, &error),
        };
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => self.add_folder(&entry.path(), depth + 1),
                Ok(kind) if kind.is_file() => self.add_file(&entry.path(), depth + 1),
                Ok(_) => {}
                Err(error) => self.fail(&entry.path(), &error),
            }
        }
    }

    fn add_file(&mut self, path: &Path, depth: usize) {
        match RelativeName::of_path(path, depth) {
            Ok(name) if !self.names.insert(name.clone()) => {
                self.fail(path, &format!("another file is already sent as {name}"));
            }
            Ok(name) => self.sources.push(Source { path: path.to_path_buf(), name }),
            Err(error) => self.fail(path, &error),
        }
    }

    fn fail(&mut self, path: &Path, error: &dyn std::fmt::Display) {
        self.errors.push(format!("{}: {error}", printable(&path.to_string_lossy())));
    }
}

/// An open file. It is an error if its size changes. Its methods block.
pub(crate) struct Reader {
    file: File,
    path: PathBuf,
    size: u64,
    modified: Option<SystemTime>,
    hasher: Sha256,
    offset: u64,
}

impl Reader {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        // Checked before it is opened: opening a pipe would wait for a writer.
        if !fs::metadata(path)?.is_file() {
            return Err(io::Error::other("not a file"));
        }
        let file = File::open(path)?;
        let metadata = file.metadata()?;
        Ok(Self {
            size: metadata.len(),
            modified: metadata.modified().ok(),
            file,
            path: path.to_path_buf(),
            hasher: Sha256::new(),
            offset: 0,
        })
    }

    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Where [`read`](Self::read) will start.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// SHA-256 of the whole file; reading starts at its beginning again.
    pub(crate) fn hash(&mut self) -> io::Result<Hash> {
        let mut hasher = Sha256::new();
        hash_up_to(&mut self.file, &mut hasher, self.size)?;
        self.file.rewind()?;
        self.check_unchanged()?;
        Ok(digest(&hasher))
    }

    /// Skips the first `length` bytes if `hash` is theirs; otherwise stays at the beginning.
    pub(crate) fn skip(&mut self, length: u64, hash: &Hash) -> io::Result<()> {
        if length == 0 || length > self.size {
            return Ok(());
        }
        let mut hasher = Sha256::new();
        if hash_up_to(&mut self.file, &mut hasher, length)? == length && digest(&hasher) == *hash {
            (self.hasher, self.offset) = (hasher, length);
        }
        self.file.seek(SeekFrom::Start(self.offset))?;
        Ok(())
    }

    /// Reads the rest and hands it on as encoded Data messages; returns the hash of the whole file. Stops early when nobody takes
    /// them any more.
    pub(crate) fn read(mut self, messages: &mpsc::Sender<Vec<u8>>) -> io::Result<Hash> {
        while self.offset < self.size {
            let room = MAX_BODY.min(usize::try_from(self.size - self.offset).unwrap_or(usize::MAX));
            let mut message = vec![0; HEADER + room];
            let count = match self.file.read(&mut message[HEADER..]) {
                Ok(0) => return Err(io::Error::other("the file shrank while it was read")),
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            message.truncate(HEADER + count);
            message[..HEADER].copy_from_slice(&data_header(count));
            self.hasher.update(&message[HEADER..]);
            self.offset += count as u64;
            if messages.blocking_send(message).is_err() {
                return Err(io::ErrorKind::Interrupted.into());
            }
        }
        self.check_unchanged()?;
        Ok(digest(&self.hasher))
    }

    fn check_unchanged(&self) -> io::Result<()> {
        let same = |now: Metadata| now.len() == self.size && now.modified().ok() == self.modified;
        // The open file shows whether it was written to, the path whether it was replaced.
        if same(self.file.metadata()?) && same(fs::metadata(&self.path)?) {
            return Ok(());
        }
        Err(io::Error::other("the file changed while it was read"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn read_all(reader: Reader) -> (io::Result<Hash>, Vec<u8>) {
        let (sender, mut messages) = mpsc::channel(1_000);
        let result = reader.read(&sender);
        drop(sender);
        let mut bytes = Vec::new();
        while let Ok(message) = messages.try_recv() {
            bytes.extend_from_slice(&message[HEADER..]);
        }
        (result, bytes)
    }

    #[test]
    fn reads_all_or_what_is_missing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let content: Vec<u8> = (0..200_000_u32).map(|i| (i % 251) as u8).collect();
        fs::write(&path, &content).unwrap();
        let whole: Hash = Sha256::digest(&content).into();

        let reader = Reader::open(&path).unwrap();
        let (hash, bytes) = read_all(reader);
        assert_eq!((hash.unwrap(), bytes), (whole, content.clone()));

        let mut reader = Reader::open(&path).unwrap();
        assert_eq!(reader.hash().unwrap(), whole);
        reader.skip(70_000, &Sha256::digest(&content[..70_000]).into()).unwrap();
        let (hash, bytes) = read_all(reader);
        assert_eq!((hash.unwrap(), &bytes[..]), (whole, &content[70_000..]));

        for (have, prefix) in [(70_000, &content[1..70_001]), (200_001, &content[..])] {
            let mut reader = Reader::open(&path).unwrap();
            reader.skip(have, &Sha256::digest(prefix).into()).unwrap();
            assert_eq!(reader.offset(), 0);
            assert_eq!(read_all(reader).1, content);
        }
    }

    #[test]
    fn a_file_that_changes_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let open = || {
            fs::write(&path, [1; 100_000]).unwrap();
            Reader::open(&path).unwrap()
        };
        let reader = open();
        fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(b"more").unwrap();
        assert!(read_all(reader).0.unwrap_err().to_string().contains("changed"));

        let reader = open();
        File::options().write(true).open(&path).unwrap().set_len(50_000).unwrap();
        assert!(read_all(reader).0.unwrap_err().to_string().contains("shrank"));

        let reader = open();
        fs::remove_file(&path).unwrap();
        assert!(read_all(reader).0.is_err());
    }

    #[test]
    fn folders_are_listed_and_doubles_refused() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("photos");
        fs::create_dir_all(root.join("2024")).unwrap();
        for name in ["b", "a", "2024/c"] {
            fs::write(root.join(name), name).unwrap();
        }
        let (sources, errors) =
            list(&[root.clone(), root.join("a"), root.join("2024/../a"), root.join("no")]);
        let names: Vec<_> = sources.iter().map(|source| source.name.as_str()).collect();
        assert_eq!(names, ["photos/2024/c", "photos/a", "photos/b", "a"]);
        assert_eq!(errors.len(), 2, "{errors:?}");
    }
}
