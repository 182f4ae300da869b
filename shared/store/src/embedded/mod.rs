//! State in one file, for one process.
//!
//! One thread writes: it takes all transactions that wait, does them in their order in one transaction of the file,
//! makes that durable once, and answers all. So many callers share one wait for the disk. Readers look at what was
//! last made durable, without waiting for the writer.

mod apply;
mod tables;

use crate::{Entry, Key, Op, Position, Reply, Store, StoreError, Transacted, Transaction};
use async_trait::async_trait;
use redb::{Database, ReadableDatabase};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tables::{Reading, Writing};
use tokio::sync::{mpsc, oneshot, watch};

/// Transactions that wait for the writer; more callers wait in their turn.
const WAITING_MAX: usize = 1024;
/// Transactions made durable together. The disk's wait is shared by them; more would only delay the first.
const GROUP_MAX: usize = 256;
/// How often expired keys are looked for, besides after writes.
const SWEEP_EVERY: Duration = Duration::from_secs(5);
/// Expired keys removed in one go; what is left is hidden anyway, and removed in the next.
const SWEEP_MAX: usize = 500;

/// A store in a file.
pub struct EmbeddedStore {
    database: Arc<Database>,
    path: PathBuf,
    writer: mpsc::Sender<Request>,
    /// Counts groups in which a stream grew.
    grown: watch::Receiver<u64>,
}

struct Request {
    transaction: Transaction,
    answer: oneshot::Sender<Result<Transacted, StoreError>>,
}

impl EmbeddedStore {
    /// Opens the file, or makes it.
    ///
    /// # Errors
    /// Where it can't be written, isn't a store's file, or another process has it open.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let failed = |reason: String| StoreError::File { path: path.display().to_string(), reason };
        let database = Database::create(path).map_err(|error| {
            failed(match error {
                redb::DatabaseError::DatabaseAlreadyOpen => {
                    "another process has it open: stop that one, or give this one a data folder of its own".into()
                }
                other => other.to_string(),
            })
        })?;
        let database = Arc::new(database);
        Writing::begin(&database).and_then(Writing::create_all).map_err(|error| failed(error.to_string()))?;
        let (writer, requests) = mpsc::channel(WAITING_MAX);
        let (growing, grown) = watch::channel(0);
        let thread = Writer { database: Arc::clone(&database), path: path.to_path_buf(), growing };
        // Ends once the store is dropped, after what was asked before is done.
        std::thread::Builder::new()
            .name("store-writer".into())
            .spawn(move || thread.run(requests))
            .map_err(|error| failed(format!("its writer could not be started: {error}")))?;
        Ok(Self { database, path: path.to_path_buf(), writer, grown })
    }

    fn read(&self, transaction: &Transaction) -> Result<Transacted, StoreError> {
        let failed = |error: &dyn std::fmt::Display| file_error(&self.path, error);
        let view = self.database.begin_read().map_err(|error| failed(&error))?;
        let mut reading = Reading::new(view).map_err(|error| failed(&error))?;
        apply::apply_reads(&mut reading, transaction, now_ms()).map_err(|error| error.at(&self.path))
    }
}

#[async_trait]
impl Store for EmbeddedStore {
    async fn transact(&self, transaction: Transaction) -> Result<Transacted, StoreError> {
        transaction.check_tags()?;
        if transaction.only_reads() {
            return self.read(&transaction);
        }
        let closed = || file_error(&self.path, &"the writer has ended");
        let (answer, answered) = oneshot::channel();
        self.writer.send(Request { transaction, answer }).await.map_err(|_| closed())?;
        answered.await.map_err(|_| closed())?
    }

    async fn tail(&self, stream: &Key, after: &Position, limit: u32, wait: Duration) -> Result<Vec<Entry>, StoreError> {
        let end = tokio::time::Instant::now() + wait;
        let mut grown = self.grown.clone();
        loop {
            // Marked before looking: what is added after the look wakes the wait.
            grown.borrow_and_update();
            let entries = {
                let failed = |error: &dyn std::fmt::Display| file_error(&self.path, error);
                let view = self.database.begin_read().map_err(|error| failed(&error))?;
                let mut reading = Reading::new(view).map_err(|error| failed(&error))?;
                apply::entries_after(&mut reading, stream, *after, limit, now_ms())
                    .map_err(|error| error.at(&self.path))?
            };
            if !entries.is_empty() {
                return Ok(entries);
            }
            match tokio::time::timeout_at(end, grown.changed()).await {
                Ok(Ok(())) => {}
                // Time is up, or the store is closing.
                Ok(Err(_)) | Err(_) => return Ok(Vec::new()),
            }
        }
    }

    async fn ping(&self) -> Result<(), StoreError> {
        if self.writer.is_closed() { Err(file_error(&self.path, &"the writer has ended")) } else { Ok(()) }
    }
}

struct Writer {
    database: Arc<Database>,
    path: PathBuf,
    growing: watch::Sender<u64>,
}

impl Writer {
    fn run(self, mut requests: mpsc::Receiver<Request>) {
        let mut swept = Instant::now();
        while let Some(first) = requests.blocking_recv() {
            let mut group = vec![first];
            while group.len() < GROUP_MAX
                && let Ok(next) = requests.try_recv()
            {
                group.push(next);
            }
            self.write(group);
            if swept.elapsed() > SWEEP_EVERY {
                swept = Instant::now();
                self.sweep();
            }
        }
    }

    fn write(&self, group: Vec<Request>) {
        let transactions: Vec<&Transaction> = group.iter().map(|request| &request.transaction).collect();
        let answers = match self.write_together(&transactions) {
            Ok(answers) => answers.into_iter().map(Ok).collect(),
            // One of them can't be done, and must not take the others with it: each by itself.
            Err(_) => transactions
                .iter()
                .map(|one| self.write_together(std::slice::from_ref(one)).map(|mut answers| answers.remove(0)))
                .collect::<Vec<_>>(),
        };
        let appends = |op: &Op| matches!(op, Op::Append { .. });
        let appended = transactions.iter().any(|one| one.then.iter().chain(&one.otherwise).any(appends));
        if appended {
            self.growing.send_modify(|count| *count += 1);
        }
        for (request, answer) in group.into_iter().zip(answers) {
            // The caller may have stopped waiting.
            let _ = request.answer.send(answer);
        }
    }

    /// All or nothing.
    fn write_together(&self, transactions: &[&Transaction]) -> Result<Vec<Transacted>, StoreError> {
        let failed = |error: &dyn std::fmt::Display| file_error(&self.path, error);
        let writing = Writing::begin(&self.database).map_err(|error| failed(&error))?;
        let (answers, changed) = {
            let mut tables = writing.tables().map_err(|error| failed(&error))?;
            let now = now_ms();
            let mut answers = Vec::with_capacity(transactions.len());
            for transaction in transactions {
                answers.push(apply::apply(&mut tables, transaction, now).map_err(|error| error.at(&self.path))?);
            }
            (answers, tables.changed)
        };
        // Where all guards failed there is nothing to wait for the disk for.
        if changed {
            writing.commit().map_err(|error| failed(&error))?;
        }
        Ok(answers)
    }

    fn sweep(&self) {
        let swept = Writing::begin(&self.database).and_then(|writing| {
            let removed = apply::sweep(&mut writing.tables()?, now_ms(), SWEEP_MAX)?;
            if removed > 0 { writing.commit() } else { Ok(()) }
        });
        if let Err(error) = swept {
            tracing::warn!(path = %self.path.display(), %error, "expired keys could not be removed");
        }
    }
}

fn file_error(path: &Path, error: &dyn std::fmt::Display) -> StoreError {
    StoreError::File { path: path.display().to_string(), reason: error.to_string() }
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// The answer's reply, for uses in this module's own parts.
type Replies = Vec<Reply>;
