//! Where connections come from: an address of TCP, or a Unix socket.

use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::SystemTime;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::accept::ConnectionAddresses;

/// It listens.
pub(crate) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener, SocketFile),
}

/// The file of a Unix socket, removed with this, if it is still the same.
pub(crate) struct SocketFile {
    path: PathBuf,
    /// Inode and birth: a number may be used again.
    made: (u64, Option<SystemTime>),
}

/// The same for tasks.
pub(crate) enum AsyncListener {
    Tcp(tokio::net::TcpListener),
    Unix(
        tokio::net::UnixListener,
        #[expect(dead_code, reason = "it is there to be dropped")] SocketFile,
    ),
}

/// A connection.
pub(crate) enum Connected {
    Tcp(tokio::net::TcpStream),
    Unix(tokio::net::UnixStream),
}

impl Connected {
    /// The user at the other end of a Unix socket, by its number (SO_PEERCRED).
    pub fn uid(&self) -> Option<u32> {
        match self {
            Connected::Tcp(_) => None,
            Connected::Unix(stream) => stream.peer_cred().ok().map(|peer| peer.uid()),
        }
    }
}

/// What this host calls a user; one that it does not know: `uid 1000`.
pub(crate) fn user_name(uid: u32) -> String {
    name_in(&fs::read_to_string("/etc/passwd").unwrap_or_default(), uid)
}

fn name_in(accounts: &str, uid: u32) -> String {
    let number = uid.to_string();
    let of = |line: &str| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)? == number).then(|| name.to_owned())
    };
    accounts.lines().find_map(of).unwrap_or_else(|| format!("uid {uid}"))
}

impl Listener {
    /// Takes an address.
    pub fn tcp(address: SocketAddr) -> io::Result<Listener> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        Ok(Listener::Tcp(listener))
    }

    /// Takes a path, for this process's user alone.
    pub fn unix(path: &Path) -> io::Result<Listener> {
        make_room(path)?;
        // Nobody reaches it before it has its mode, whatever the umask is.
        let (folder, name) = (path.parent().unwrap_or(Path::new("")), path.file_name());
        let name = name.ok_or(io::ErrorKind::InvalidInput)?.to_string_lossy();
        let private = Private(folder.join(format!(".{name}.{}", std::process::id())));
        fs::DirBuilder::new().mode(0o700).create(&private.0)?;
        // Short: a path has at most 107 octets.
        let made = private.0.join("s");
        let listener = UnixListener::bind(&made)?;
        fs::set_permissions(&made, PermissionsExt::from_mode(0o600))?;
        listener.set_nonblocking(true)?;
        fs::rename(&made, path)?;
        let made = identity(&fs::symlink_metadata(path)?);
        Ok(Listener::Unix(listener, SocketFile { path: path.to_owned(), made }))
    }

    /// Where it listens.
    pub fn address(&self) -> io::Result<SocketAddr> {
        match self {
            Listener::Tcp(listener) => listener.local_addr(),
            Listener::Unix(..) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// For the tasks of this thread's runtime.
    pub fn into_async(self) -> io::Result<AsyncListener> {
        Ok(match self {
            Listener::Tcp(tcp) => AsyncListener::Tcp(tokio::net::TcpListener::from_std(tcp)?),
            Listener::Unix(unix, file) => {
                AsyncListener::Unix(tokio::net::UnixListener::from_std(unix)?, file)
            }
        })
    }
}

/// Removes a socket that nobody answers on.
fn make_room(path: &Path) -> io::Result<()> {
    let meta = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        found => found?,
    };
    if !meta.file_type().is_socket() {
        let why = format!("{} is there and is no socket; name another path", path.display());
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path),
        Err(error) => Err(error),
        Ok(_) => {
            let why = format!("another station answers on {}; end it first", path.display());
            Err(io::Error::new(io::ErrorKind::AddrInUse, why))
        }
    }
}

fn identity(meta: &fs::Metadata) -> (u64, Option<SystemTime>) {
    (meta.ino(), meta.created().ok())
}

/// A folder that is removed, with the socket that may be left in it.
struct Private(PathBuf);

impl Drop for Private {
    fn drop(&mut self) {
        let _ = fs::remove_file(self.0.join("s"));
        let _ = fs::remove_dir(&self.0);
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if fs::symlink_metadata(&self.path).is_ok_and(|meta| identity(&meta) == self.made) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl AsyncListener {
    /// The next connection, and its ends: those of a Unix socket are on this host.
    pub async fn accept(&self) -> io::Result<(Connected, ConnectionAddresses)> {
        match self {
            AsyncListener::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                let _ = stream.set_nodelay(true);
                let local = stream.local_addr()?.ip();
                Ok((Connected::Tcp(stream), ConnectionAddresses { peer: peer.ip(), local }))
            }
            AsyncListener::Unix(listener, _) => {
                let (stream, _) = listener.accept().await?;
                Ok((Connected::Unix(stream), ConnectionAddresses::LOOPBACK))
            }
        }
    }
}

impl AsyncRead for Connected {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Connected::Tcp(stream) => Pin::new(stream).poll_read(context, buffer),
            Connected::Unix(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Connected {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        octets: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Connected::Tcp(stream) => Pin::new(stream).poll_write(context, octets),
            Connected::Unix(stream) => Pin::new(stream).poll_write(context, octets),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Connected::Tcp(stream) => Pin::new(stream).poll_flush(context),
            Connected::Unix(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Connected::Tcp(stream) => Pin::new(stream).poll_shutdown(context),
            Connected::Unix(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Connected::Tcp(stream) => Pin::new(stream).poll_write_vectored(context, slices),
            Connected::Unix(stream) => Pin::new(stream).poll_write_vectored(context, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Connected::Tcp(stream) => stream.is_write_vectored(),
            Connected::Unix(stream) => stream.is_write_vectored(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_has_the_name_of_its_account_or_its_number() {
        let accounts = "root:x:0:0:root:/root:/bin/sh\nann:x:1000:1000::/home/ann:/bin/sh\nodd\n";
        assert_eq!(name_in(accounts, 1_000), "ann");
        assert_eq!(name_in(accounts, 0), "root");
        assert_eq!(name_in(accounts, 7), "uid 7");
    }

    #[test]
    fn a_socket_is_for_its_user_replaces_a_dead_one_and_no_other_file() {
        let folder = std::env::temp_dir().join(format!("sonde-listener-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("api.sock");
        let first = Listener::unix(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert!(UnixStream::connect(&path).is_ok());
        let taken = Listener::unix(&path).err().unwrap();
        assert_eq!(taken.kind(), io::ErrorKind::AddrInUse, "{taken}");
        // As a process that was killed leaves it.
        let Listener::Unix(listener, file) = first else { panic!() };
        drop(listener);
        let second = Listener::unix(&path).unwrap();
        drop(file);
        assert!(UnixStream::connect(&path).is_ok(), "that of the second stays");
        drop(second);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0, "nothing is left");
        fs::write(&path, "kept").unwrap();
        assert_eq!(Listener::unix(&path).err().unwrap().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read(&path).unwrap(), b"kept");
        fs::remove_dir_all(&folder).unwrap();
    }
}
