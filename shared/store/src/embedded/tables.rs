//! The file's tables. A key has a row in `meta` that says what kind it is of and when it expires; what it holds is
//! in the table of its kind, under the key.

use redb::{
    Database, ReadOnlyTable, ReadTransaction, ReadableTable, StorageError, Table, TableDefinition, TableError,
    WriteTransaction,
};

/// kind, expiry (Unix ms, 0 for never), and for streams the last position's two numbers.
pub type MetaRow = (u8, u64, u64, u64);

const META: TableDefinition<'_, &str, MetaRow> = TableDefinition::new("meta");
const VALUES: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("values");
const FIELDS: TableDefinition<'_, (&str, &str), &[u8]> = TableDefinition::new("fields");
const SCORES: TableDefinition<'_, (&str, &str), u64> = TableDefinition::new("scores");
const RANKS: TableDefinition<'_, (&str, u64, &str), ()> = TableDefinition::new("ranks");
const ENTRIES: TableDefinition<'_, (&str, u64, u64), &[u8]> = TableDefinition::new("entries");
const EXPIRIES: TableDefinition<'_, (u64, &str), ()> = TableDefinition::new("expiries");

/// An open transaction of the file.
pub struct Writing(WriteTransaction);

impl Writing {
    pub fn begin(database: &Database) -> Result<Self, redb::Error> {
        Ok(Self(database.begin_write()?))
    }

    /// Makes the tables of a new file.
    pub fn create_all(self) -> Result<(), redb::Error> {
        drop(self.tables()?);
        self.commit()
    }

    pub fn tables(&self) -> Result<WriteTables<'_>, redb::Error> {
        Ok(WriteTables {
            meta: self.0.open_table(META)?,
            values: self.0.open_table(VALUES)?,
            fields: self.0.open_table(FIELDS)?,
            scores: self.0.open_table(SCORES)?,
            ranks: self.0.open_table(RANKS)?,
            entries: self.0.open_table(ENTRIES)?,
            expiries: self.0.open_table(EXPIRIES)?,
            changed: false,
        })
    }

    pub fn commit(self) -> Result<(), redb::Error> {
        Ok(self.0.commit()?)
    }
}

/// Tables to read and write.
pub struct WriteTables<'t> {
    pub meta: Table<'t, &'static str, MetaRow>,
    pub values: Table<'t, &'static str, &'static [u8]>,
    pub fields: Table<'t, (&'static str, &'static str), &'static [u8]>,
    pub scores: Table<'t, (&'static str, &'static str), u64>,
    pub ranks: Table<'t, (&'static str, u64, &'static str), ()>,
    pub entries: Table<'t, (&'static str, u64, u64), &'static [u8]>,
    pub expiries: Table<'t, (u64, &'static str), ()>,
    /// Something was written.
    pub changed: bool,
}

/// Tables to read, as they were last made durable.
pub struct Reading {
    meta: ReadOnlyTable<&'static str, MetaRow>,
    values: ReadOnlyTable<&'static str, &'static [u8]>,
    fields: ReadOnlyTable<(&'static str, &'static str), &'static [u8]>,
    scores: ReadOnlyTable<(&'static str, &'static str), u64>,
    ranks: ReadOnlyTable<(&'static str, u64, &'static str), ()>,
    entries: ReadOnlyTable<(&'static str, u64, u64), &'static [u8]>,
}

impl Reading {
    pub fn new(view: ReadTransaction) -> Result<Self, TableError> {
        Ok(Self {
            meta: view.open_table(META)?,
            values: view.open_table(VALUES)?,
            fields: view.open_table(FIELDS)?,
            scores: view.open_table(SCORES)?,
            ranks: view.open_table(RANKS)?,
            entries: view.open_table(ENTRIES)?,
        })
    }
}

/// What looking needs, whether in a transaction that writes or in one that only reads.
pub trait Tables {
    fn meta(&self, key: &str) -> Result<Option<MetaRow>, StorageError>;
    fn value(&self, key: &str) -> Result<Option<Vec<u8>>, StorageError>;
    fn field(&self, key: &str, field: &str) -> Result<Option<Vec<u8>>, StorageError>;
    fn all_fields(&self, key: &str) -> Result<Vec<(String, Vec<u8>)>, StorageError>;
    fn has_fields(&self, key: &str) -> Result<bool, StorageError>;
    /// Members by score then name within the bounds, at most `limit`.
    fn ranked(
        &self,
        key: &str,
        min: u64,
        max: u64,
        limit: usize,
        down: bool,
    ) -> Result<Vec<(String, u64)>, StorageError>;
    /// Members by name from `from` on, itself left out if `beyond`, while they start with `prefix`.
    fn members(
        &self,
        key: &str,
        from: &str,
        beyond: bool,
        prefix: &str,
        limit: usize,
    ) -> Result<Vec<String>, StorageError>;
    fn member_count(&self, key: &str) -> Result<u64, StorageError>;
    /// Entries after a position, oldest first.
    fn entries_after(
        &self,
        key: &str,
        after: (u64, u64),
        limit: usize,
    ) -> Result<Vec<(u64, u64, Vec<u8>)>, StorageError>;
    /// The last entries before a position, oldest first.
    fn entries_before(
        &self,
        key: &str,
        before: Option<(u64, u64)>,
        limit: usize,
    ) -> Result<Vec<(u64, u64, Vec<u8>)>, StorageError>;
}

macro_rules! read_tables {
    ($for:ty) => {
        impl Tables for $for {
            fn meta(&self, key: &str) -> Result<Option<MetaRow>, StorageError> {
                Ok(self.meta.get(key)?.map(|row| row.value()))
            }

            fn value(&self, key: &str) -> Result<Option<Vec<u8>>, StorageError> {
                Ok(self.values.get(key)?.map(|value| value.value().to_vec()))
            }

            fn field(&self, key: &str, field: &str) -> Result<Option<Vec<u8>>, StorageError> {
                Ok(self.fields.get((key, field))?.map(|value| value.value().to_vec()))
            }

            fn all_fields(&self, key: &str) -> Result<Vec<(String, Vec<u8>)>, StorageError> {
                let mut all = Vec::new();
                for row in self.fields.range((key, "")..)? {
                    let (place, value) = row?;
                    let (owner, field) = place.value();
                    if owner != key {
                        break;
                    }
                    all.push((field.to_owned(), value.value().to_vec()));
                }
                Ok(all)
            }

            fn has_fields(&self, key: &str) -> Result<bool, StorageError> {
                match self.fields.range((key, "")..)?.next() {
                    Some(row) => Ok(row?.0.value().0 == key),
                    None => Ok(false),
                }
            }

            fn ranked(
                &self,
                key: &str,
                min: u64,
                max: u64,
                limit: usize,
                down: bool,
            ) -> Result<Vec<(String, u64)>, StorageError> {
                let mut all = Vec::new();
                if min > max {
                    return Ok(all);
                }
                // The members of the highest score have no last name to end a range with; the next score has a first,
                // and so has the next key that may be.
                let next_key = format!("{key}\0");
                let end = max.checked_add(1).map_or((next_key.as_str(), 0, ""), |next| (key, next, ""));
                let rows = self.ranks.range((key, min, "")..end)?;
                let mut take = |row: (redb::AccessGuard<'_, (&'static str, u64, &'static str)>, _)| {
                    let (owner, score, member) = row.0.value();
                    if owner == key {
                        all.push((member.to_owned(), score));
                    }
                    owner == key
                };
                if down {
                    for row in rows.rev().take(limit) {
                        take(row?);
                    }
                } else {
                    for row in rows.take(limit) {
                        if !take(row?) {
                            break;
                        }
                    }
                }
                Ok(all)
            }

            fn members(
                &self,
                key: &str,
                from: &str,
                beyond: bool,
                prefix: &str,
                limit: usize,
            ) -> Result<Vec<String>, StorageError> {
                let mut all = Vec::new();
                for row in self.scores.range((key, from)..)? {
                    let (place, _) = row?;
                    let (owner, member) = place.value();
                    if owner != key || !member.starts_with(prefix) || all.len() == limit {
                        break;
                    }
                    if !(beyond && member == from) {
                        all.push(member.to_owned());
                    }
                }
                Ok(all)
            }

            fn member_count(&self, key: &str) -> Result<u64, StorageError> {
                let mut count = 0;
                for row in self.scores.range((key, "")..)? {
                    if row?.0.value().0 != key {
                        break;
                    }
                    count += 1;
                }
                Ok(count)
            }

            fn entries_after(
                &self,
                key: &str,
                (ms, sequence): (u64, u64),
                limit: usize,
            ) -> Result<Vec<(u64, u64, Vec<u8>)>, StorageError> {
                let mut all = Vec::new();
                let from = std::ops::Bound::Excluded((key, ms, sequence));
                for row in self.entries.range((from, std::ops::Bound::Unbounded))?.take(limit) {
                    let (place, value) = row?;
                    let (owner, ms, sequence) = place.value();
                    if owner != key {
                        break;
                    }
                    all.push((ms, sequence, value.value().to_vec()));
                }
                Ok(all)
            }

            fn entries_before(
                &self,
                key: &str,
                before: Option<(u64, u64)>,
                limit: usize,
            ) -> Result<Vec<(u64, u64, Vec<u8>)>, StorageError> {
                use std::ops::Bound::{Excluded, Included};
                let end =
                    before.map_or(Included((key, u64::MAX, u64::MAX)), |(ms, sequence)| Excluded((key, ms, sequence)));
                let mut all = Vec::new();
                for row in self.entries.range((Included((key, 0, 0)), end))?.rev().take(limit) {
                    let (place, value) = row?;
                    let (_, ms, sequence) = place.value();
                    all.push((ms, sequence, value.value().to_vec()));
                }
                all.reverse();
                Ok(all)
            }
        }
    };
}

read_tables!(WriteTables<'_>);
read_tables!(Reading);
