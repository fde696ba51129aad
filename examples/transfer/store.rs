//! The directory that files are received into.
//!
//! A file grows under a hidden name next to its final place. So a broken transfer can be resumed, and no unfinished file ever
//! has the final name. Everything here blocks.

use std::{
    collections::HashSet,
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, ErrorKind, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use sha2::{Digest, Sha256};
use tokio::{sync::Notify, time};

use super::{
    names::{PART_SUFFIX, RelativeName},
    protocol::{Hash, digest},
};

/// A directory and the files in it that are being received.
pub(crate) struct Store {
    root: PathBuf,
    overwrite: bool,
    busy: Mutex<HashSet<PathBuf>>,
    freed: Notify,
}

impl Store {
    /// Opens the directory, and makes it when it is not there.
    pub(crate) fn open(root: &Path, overwrite: bool) -> io::Result<Self> {
        fs::create_dir_all(root)?;
        Ok(Self { root: root.canonicalize()?, overwrite, busy: Mutex::default(), freed: Notify::new() })
    }

    /// Reserves a name for one sender. If another has it, possibly a dead one, waits for up to `patience`.
    pub(crate) async fn reserve(self: &Arc<Self>, name: &RelativeName, patience: Duration) -> Option<Slot> {
        let path = name.below(&self.root);
        let reserved = async {
            loop {
                let freed = self.freed.notified();
                tokio::pin!(freed);
                freed.as_mut().enable();
                if self.busy().insert(path.clone()) {
                    return;
                }
                freed.await;
            }
        };
        time::timeout(patience, reserved).await.ok()?;
        let part = path.with_file_name(part_name(name));
        Some(Slot { store: Arc::clone(self), name: name.clone(), path, part })
    }

    fn busy(&self) -> std::sync::MutexGuard<'_, HashSet<PathBuf>> {
        self.busy.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The right to write one file; given back when dropped.
pub(crate) struct Slot {
    store: Arc<Store>,
    name: RelativeName,
    path: PathBuf,
    part: PathBuf,
}

/// What is at a file's final place.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Existing {
    Nothing,
    /// A file of the size asked for.
    SameSize(Hash),
    /// A file of another size.
    Different,
}

impl Slot {
    /// Makes the folders of the name and looks at what is there. Links are not followed.
    pub(crate) fn look(&self, size: u64) -> io::Result<Existing> {
        self.make_folders()?;
        let metadata = match fs::symlink_metadata(&self.path) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Existing::Nothing),
            Err(error) => return Err(error),
        };
        if !metadata.is_file() {
            return Err(io::Error::other("something that is not a file has this name at the receiver"));
        }
        if metadata.len() != size {
            return Ok(Existing::Different);
        }
        let mut hasher = Sha256::new();
        let hashed = hash_up_to(&mut open_existing(&self.path)?, &mut hasher, size)?;
        Ok(if hashed == size { Existing::SameSize(digest(&hasher)) } else { Existing::Different })
    }

    /// Whether a different file of this name is to be replaced.
    pub(crate) fn overwrite(&self) -> bool {
        self.store.overwrite
    }

    /// Opens what an earlier transfer left, or a new file, and hashes what is there. If that is longer than `size`, it belongs
    /// to another file and is dropped.
    pub(crate) fn open_part(self, size: u64) -> io::Result<Part> {
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        let found = match fs::symlink_metadata(&self.part) {
            Ok(metadata) if metadata.is_file() => Some(metadata.len()),
            Ok(_) => return Err(io::Error::other("the place of the unfinished file is taken")),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let file = no_links(options.create_new(found.is_none())).open(&self.part)?;
        lock(&file, &self.part)?;
        let mut part = Part { file, hasher: Sha256::new(), have: 0, slot: self };
        if found.is_some_and(|length| length <= size) {
            part.have = hash_up_to(&mut part.file, &mut part.hasher, size)?;
        }
        Ok(part)
    }

    fn make_folders(&self) -> io::Result<()> {
        let mut path = self.store.root.clone();
        for folder in self.name.folders() {
            path.push(folder);
            match fs::create_dir(&path) {
                Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
                _ if fs::symlink_metadata(&path)?.is_dir() => {}
                _ => return Err(io::Error::other(format!("{folder} is not a folder at the receiver"))),
            }
        }
        Ok(())
    }

    /// Gives the finished file its name.
    fn publish(&self) -> io::Result<()> {
        if self.store.overwrite {
            fs::rename(&self.part, &self.path)?;
        } else {
            // Unlike a rename, a link never replaces what appeared there in the meantime.
            match fs::hard_link(&self.part, &self.path) {
                Ok(()) => fs::remove_file(&self.part)?,
                Err(error) if error.kind() == ErrorKind::AlreadyExists => return Err(error),
                // A file system without hard links.
                Err(_) if fs::symlink_metadata(&self.path).is_ok() => {
                    return Err(ErrorKind::AlreadyExists.into());
                }
                Err(_) => fs::rename(&self.part, &self.path)?,
            }
        }
        sync_folder(&self.path);
        Ok(())
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.store.busy().remove(&self.path);
        self.store.freed.notify_waiters();
    }
}

/// A file that is being received.
pub(crate) struct Part {
    file: File,
    hasher: Sha256,
    have: u64,
    slot: Slot,
}

impl Part {
    /// Bytes that are there.
    pub(crate) fn have(&self) -> u64 {
        self.have
    }

    /// SHA-256 of those bytes.
    pub(crate) fn hash(&self) -> Hash {
        digest(&self.hasher)
    }

    /// Continues after the first `offset` bytes: all that are there, or none.
    pub(crate) fn start_at(&mut self, offset: u64) -> io::Result<()> {
        if offset != self.have {
            self.hasher = Sha256::new();
            self.have = 0;
        }
        self.file.set_len(self.have)?;
        self.file.seek(SeekFrom::Start(self.have))?;
        Ok(())
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        self.hasher.update(bytes);
        self.have += bytes.len() as u64;
        Ok(())
    }

    /// Checks the whole file, syncs it and gives it its name. Removes it if it is wrong.
    pub(crate) fn finish(self, expected: &Hash) -> io::Result<()> {
        if self.hash() != *expected {
            drop(self.file);
            let _ = fs::remove_file(&self.slot.part);
            return Err(io::Error::new(
                ErrorKind::InvalidData,
                "what arrived does not have the SHA-256 of the file",
            ));
        }
        self.file.sync_all()?;
        // Windows does not rename open files.
        drop(self.file);
        self.slot.publish()
    }

    /// Syncs what is there, so that a later transfer can resume it. Removes an empty file.
    pub(crate) fn keep(self) {
        if self.have == 0 {
            drop(self.file);
            let _ = fs::remove_file(&self.slot.part);
        } else {
            let _ = self.file.sync_all();
        }
    }
}

/// Hashes the next `limit` bytes of `file`, or all up to its end if there are fewer; returns how many.
pub(crate) fn hash_up_to(file: &mut impl Read, hasher: &mut Sha256, limit: u64) -> io::Result<u64> {
    let mut buffer = vec![0; 256 * 1_024];
    let mut done = 0;
    while done < limit {
        let room = buffer.len().min(usize::try_from(limit - done).unwrap_or(usize::MAX));
        match file.read(&mut buffer[..room]) {
            Ok(0) => break,
            Ok(count) => {
                hasher.update(&buffer[..count]);
                done += count as u64;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// The name of an unfinished file: hidden, readable, short enough, and different for different names.
fn part_name(name: &RelativeName) -> String {
    let hash = Sha256::digest(name.as_str().as_bytes());
    let hex: String = hash.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    let file = name.file_name();
    let end = (0..=file.len().min(MAX_SHOWN)).rev().find(|&end| file.is_char_boundary(end));
    format!(".{}.{hex}{PART_SUFFIX}", &file[..end.unwrap_or(0)])
}

fn open_existing(path: &Path) -> io::Result<File> {
    no_links(OpenOptions::new().read(true)).open(path)
}

/// Does not follow a link either that has replaced the file since it was checked.
/// Keeps other receivers from `file`, which was found at `path`, until it is closed.
fn lock(file: &File, path: &Path) -> io::Result<()> {
    let busy = || io::Error::new(ErrorKind::ResourceBusy, "another receiver is writing this file");
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => return Err(busy()),
        // Not every file system has locks.
        Err(TryLockError::Error(error)) if error.kind() != ErrorKind::Unsupported => return Err(error),
        _ => {}
    }
    // The previous holder of the lock may have given the file its final name.
    let found = fs::symlink_metadata(path).map_err(|_| busy())?;
    if is_same(&file.metadata()?, &found) { Ok(()) } else { Err(busy()) }
}

#[cfg(unix)]
fn is_same(one: &fs::Metadata, other: &fs::Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

/// An open file keeps its name.
#[cfg(not(unix))]
fn is_same(_: &fs::Metadata, _: &fs::Metadata) -> bool {
    true
}

fn no_links(options: &mut OpenOptions) -> &mut OpenOptions {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(options, libc::O_NOFOLLOW);
    options
}

/// A new name is only safe from a power cut once its folder is on disk. Not every system can do that.
fn sync_folder(path: &Path) {
    if let Some(folder) = path.parent()
        && let Ok(folder) = File::open(folder)
    {
        let _ = folder.sync_all();
    }
}

/// Bytes of the real name in that of an unfinished file: with the rest, below the 255 of most file systems.
const MAX_SHOWN: usize = 200;
