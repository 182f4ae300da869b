//! What was used, counted once.

use super::{Records, Step, corrupt, from_decimal, from_text};
use crate::{Guard, Key, Op, StoreError, Transaction};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt;
use std::sync::Mutex;
use std::time::Duration;
use toolfleet_protocol::{AccountId, Metering};

/// How long a call is known to have been counted. Its event may come again until it is off the queue.
const COUNTED_RETENTION: Duration = Duration::from_secs(7 * 24 * 3600);

/// How long a day's sums are kept: a year and a month, to compare with.
const DAY_RETENTION: Duration = Duration::from_secs(DAYS_MAX as u64 * 24 * 3600);

/// Days that are read at once: all that are kept.
const DAYS_MAX: u32 = 400;

/// Accounts that this process remembers to have put on the index, before it starts afresh.
const ACCOUNTS_SEEN_MAX: usize = 10_000;

/// What one call adds to a sum at the most, 30 years of milliseconds: past it the event is wrong, and without a
/// bound a few such would overflow the sum.
const ADDED_MAX: u64 = 1_000_000_000_000;

/// Stands for the plugin of calls that have none.
const NO_PLUGIN: &str = "-";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counted {
    First,
    /// The call is in the sums already.
    Again,
}

/// A day of the UTC calendar.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Day {
    /// From 1970-01-01.
    number: u32,
}

/// What an account used on one day.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UsageDay {
    pub day: Day,
    /// By plugin; `-` for calls whose plugin there isn't.
    pub plugins: BTreeMap<String, UsageSum>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UsageSum {
    pub calls: u64,
    /// Of the calls, those that failed.
    pub failed: u64,
    pub wall_ms: u64,
    pub cpu_ms: u64,
    pub host_calls: u64,
}

/// The accounts that this process put on the index, each with the day.
#[derive(Debug, Default)]
pub(super) struct AccountsSeen(Mutex<HashSet<(AccountId, Day)>>);

impl AccountsSeen {
    fn has(&self, entry: &(AccountId, Day)) -> bool {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).contains(entry)
    }

    fn add(&self, entry: (AccountId, Day)) {
        let mut seen = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if seen.len() >= ACCOUNTS_SEEN_MAX {
            seen.clear();
        }
        seen.insert(entry);
    }
}

fn usage_key(account: &AccountId, path: &str) -> Key {
    Key::new(&format!("usage:{account}"), path)
}

fn day_key(account: &AccountId, day: Day) -> Key {
    usage_key(account, &format!("day/{day}"))
}

fn accounts_key(day: Day) -> Key {
    Key::new("usage", &format!("accounts/{day}"))
}

impl Records {
    /// Adds a call to its account's sums of the day on which it ended, unless it is in them.
    pub async fn count(&self, metering: &Metering) -> Result<Counted, StoreError> {
        let Metering { call_id, account, usage, .. } = metering;
        let day = Day::of_ms(metering.finished_at_ms);
        self.list_account(account, day).await?;

        let plugin = metering.plugin.as_ref().map_or(NO_PLUGIN, |plugin| plugin.as_str());
        let mark = usage_key(account, &format!("counted/{call_id}"));
        let sums = day_key(account, day);
        let mut then = vec![Op::Set { key: mark.clone(), value: Bytes::new(), expires_in: Some(COUNTED_RETENTION) }];
        let added = [
            ("calls", 1),
            ("failed", metering.failure.is_some().into()),
            ("wall_ms", usage.wall_ms),
            ("cpu_ms", usage.cpu_ms),
            ("host_calls", usage.host_calls),
        ];
        then.extend(added.into_iter().map(|(what, by)| Op::FieldAdd {
            key: sums.clone(),
            field: format!("{plugin}/{what}"),
            by: i64::try_from(by.min(ADDED_MAX)).unwrap_or(i64::MAX),
        }));
        then.push(Op::Expire { key: sums, expires_in: DAY_RETENTION });
        let transaction = Transaction { guards: vec![Guard::Absent(mark)], then, otherwise: Vec::new() };
        Ok(match self.step(&format!("usage of account {account} on {day}"), transaction).await? {
            Step::Then(_) => Counted::First,
            Step::Otherwise { .. } => Counted::Again,
        })
    }

    /// Puts the account on the index before anything is counted for it; once a day and process.
    async fn list_account(&self, account: &AccountId, day: Day) -> Result<(), StoreError> {
        let entry = (account.clone(), day);
        if self.seen.accounts.has(&entry) {
            return Ok(());
        }
        let key = accounts_key(day);
        let ops = vec![
            Op::Rank { key: key.clone(), member: account.to_string(), score: 0 },
            Op::Expire { key, expires_in: DAY_RETENTION },
        ];
        self.ask(ACCOUNTS, ops).await?;
        self.seen.accounts.add(entry);
        Ok(())
    }

    /// What an account used from one day to another, both included; days without use are left out. Of a longer
    /// time only the last 400 days: no more are kept.
    pub async fn usage(&self, account: &AccountId, from: Day, to: Day) -> Result<Vec<UsageDay>, StoreError> {
        let days = days(from, to);
        if days.is_empty() {
            return Ok(Vec::new());
        }
        let ops = days.iter().map(|day| Op::FieldsGet(day_key(account, *day))).collect();
        let mut replies = self.ask(&format!("usage of account {account}"), ops).await?;
        let mut usage = Vec::new();
        for day in days {
            let fields = replies.fields()?;
            if !fields.is_empty() {
                usage.push(read_day(&format!("usage of account {account} on {day}"), day, fields)?);
            }
        }
        Ok(usage)
    }

    /// Accounts that used anything from one day to another, both included, by name; at most `limit`.
    pub async fn accounts_with_usage(&self, from: Day, to: Day, limit: u32) -> Result<Vec<AccountId>, StoreError> {
        let days = days(from, to);
        if days.is_empty() {
            return Ok(Vec::new());
        }
        let members = |day| Op::Members { key: accounts_key(day), prefix: String::new(), after: None, limit };
        let mut replies = self.ask(ACCOUNTS, days.iter().copied().map(members).collect()).await?;
        let mut accounts = BTreeSet::new();
        for _ in days {
            for (account, _) in replies.ranked()? {
                accounts.insert(from_text::<AccountId>(ACCOUNTS, account.as_bytes())?);
            }
        }
        Ok(accounts.into_iter().take(limit as usize).collect())
    }
}

const ACCOUNTS: &str = "the index of accounts with usage";

/// The days from one to another, both included; of more than are kept, the last.
fn days(from: Day, to: Day) -> Vec<Day> {
    let first = from.number.max(to.number.saturating_sub(DAYS_MAX - 1));
    (first..=to.number).map(|number| Day { number }).collect()
}

fn read_day(record: &str, day: Day, fields: Vec<(String, Bytes)>) -> Result<UsageDay, StoreError> {
    let mut plugins: BTreeMap<String, UsageSum> = BTreeMap::new();
    for (field, value) in fields {
        let unknown = || corrupt(record, format_args!("it has a field {field:?}"));
        let (plugin, what) = field.split_once('/').ok_or_else(unknown)?;
        let sum = plugins.entry(plugin.to_owned()).or_default();
        let place = match what {
            "calls" => &mut sum.calls,
            "failed" => &mut sum.failed,
            "wall_ms" => &mut sum.wall_ms,
            "cpu_ms" => &mut sum.cpu_ms,
            "host_calls" => &mut sum.host_calls,
            _ => return Err(unknown()),
        };
        *place = from_decimal(record, &value)?;
    }
    Ok(UsageDay { day, plugins })
}

const DAY_MS: u64 = 24 * 3600 * 1000;

impl Day {
    /// The day of a Unix time in milliseconds.
    pub fn of_ms(at_ms: u64) -> Self {
        Self { number: u32::try_from(at_ms / DAY_MS).unwrap_or(u32::MAX).min(Self::LAST) }
    }

    /// Reads `2026-12-01`; days from 1970 on that there are.
    pub fn parse(text: &str) -> Option<Self> {
        let parts = text.split('-').map(|part| part.bytes().all(|b| b.is_ascii_digit()).then_some(part));
        let parts: Vec<&str> = parts.collect::<Option<_>>()?;
        let [year, month, day] = parts[..] else { return None };
        if (year.len(), month.len(), day.len()) != (4, 2, 2) {
            return None;
        }
        let day = Self::of_civil(year.parse().ok()?, month.parse().ok()?, day.parse().ok()?)?;
        // A day that there isn't, such as February 30th, comes out as another.
        (day.to_string() == text).then_some(day)
    }

    /// 9999-12-31: the last that has four digits.
    const LAST: u32 = 2_932_896;

    /// Days are counted in years that start in March, so that the leap day is their last, and in eras of 400
    /// years, after which the calendar repeats.
    fn of_civil(year: u32, month: u32, day: u32) -> Option<Self> {
        let year = if month <= 2 { year.checked_sub(1)? } else { year };
        let (era, year) = (year / 400, year % 400);
        let month = (month + 9) % 12;
        let day_of_year = (153 * month + 2) / 5 + day.checked_sub(1)?;
        let day_of_era = year * 365 + year / 4 - year / 100 + day_of_year;
        Some(Self { number: (era * ERA_DAYS + day_of_era).checked_sub(ERA_START)? })
    }

    /// Year, month, day.
    fn civil(self) -> (u32, u32, u32) {
        let since = self.number + ERA_START;
        let (era, day) = (since / ERA_DAYS, since % ERA_DAYS);
        let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
        let day = day - (365 * year + year / 4 - year / 100);
        let month = (5 * day + 2) / 153;
        let day = day - (153 * month + 2) / 5 + 1;
        let month = if month < 10 { month + 3 } else { month - 9 };
        (era * 400 + year + u32::from(month <= 2), month, day)
    }
}

/// Days of 400 years.
const ERA_DAYS: u32 = 146_097;

/// Days from 0000-03-01 to 1970-01-01.
const ERA_START: u32 = 719_468;

impl fmt::Display for Day {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = self.civil();
        write!(f, "{year:04}-{month:02}-{day:02}")
    }
}

impl TryFrom<String> for Day {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text).ok_or_else(|| {
            let got: String = text.chars().take(80).collect();
            format!("a day must be written as 2026-12-01, but is {got:?}")
        })
    }
}

impl From<Day> for String {
    fn from(day: Day) -> String {
        day.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_those_of_the_calendar() {
        let check = |at_s: u64, expected: &str| assert_eq!(Day::of_ms(at_s * 1000).to_string(), expected);
        check(0, "1970-01-01");
        check(86_399, "1970-01-01");
        check(86_400, "1970-01-02");
        check(951_782_400, "2000-02-29");
        check(951_868_800, "2000-03-01");
        check(1_735_689_599, "2024-12-31");
        check(1_735_689_600, "2025-01-01");
        check(1_764_547_200, "2025-12-01");
        check(4_107_542_400, "2100-03-01");
        assert_eq!(Day::of_ms(u64::MAX).to_string(), "9999-12-31");
    }

    #[test]
    fn every_day_reads_back_as_it_was_written() {
        let mut before = None;
        for number in (0..=Day::LAST).step_by(7) {
            let day = Day { number };
            let text = day.to_string();
            assert_eq!(Day::parse(&text), Some(day), "{text}");
            assert!(before < Some(text.clone()), "{text}");
            before = Some(text);
        }
    }

    #[test]
    fn what_is_no_day_is_refused() {
        for bad in [
            "",
            "2026",
            "2026-12",
            "2026-12-1",
            "2026-13-01",
            "2026-00-01",
            "2026-02-30",
            "2025-02-29",
            "2026-12-00",
            "1969-12-31",
            "0000-01-01",
            "+026-12-01",
            "2026-12-01T00:00",
            "20261201",
            "２０２６-12-01",
        ] {
            assert_eq!(Day::parse(bad), None, "{bad}");
        }
        let error = serde_json::from_str::<Day>("\"today\"").unwrap_err().to_string();
        assert!(error.contains("must be written as 2026-12-01"), "{error}");
    }
}
