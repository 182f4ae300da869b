//! A fleet of real processes: on RabbitMQ and Redis, or all in one on the embedded queue and store.

use crate::{Api, Process, binary, eventually};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tempfile::TempDir;

/// Which queue and which store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pair {
    /// One process, in files.
    Embedded,
    /// RabbitMQ and Redis, each role a process.
    Real,
}

impl Pair {
    pub const BOTH: [Pair; 2] = [Pair::Embedded, Pair::Real];
}

/// What a test may ask of its fleet.
#[derive(Debug, Clone, Default)]
pub struct FleetOptions {
    /// Worker processes at the start; none for [`Pair::Embedded`], whose one process is the worker too.
    pub workers: usize,
    /// Calls at once in a worker; the default's if 0.
    pub slots: usize,
    /// Deliveries until a call is lost; the default's if 0.
    pub deliveries_max: u32,
    /// Which URL stands for a host that plugins call.
    pub upstreams: Vec<(String, String)>,
}

/// Processes, their services and their folder; all gone when dropped.
pub struct Fleet {
    pub api: Api,
    /// The first is the scheduler, or the one process of [`Pair::Embedded`].
    scheduler: Process,
    pub workers: Vec<Process>,
    config: PathBuf,
    amqp: Option<VirtualHost>,
    _redis: Option<Process>,
    folder: TempDir,
    started: usize,
}

/// A start may wait for a broker that is busy with other tests.
const START_BOUND: Duration = Duration::from_secs(60);

impl Fleet {
    /// Starts everything and waits until it is ready.
    pub async fn start(pair: Pair, options: FleetOptions) -> Self {
        let folder = tempfile::Builder::new().prefix("toolfleet-test-").tempdir().expect("a temporary folder");
        let port = free_port();
        let config = folder.path().join("toolfleet.toml");
        let (amqp, redis, services) = match pair {
            Pair::Embedded => (None, None, String::new()),
            Pair::Real => {
                let amqp = VirtualHost::create();
                let (redis, redis_url) = start_redis(folder.path()).await;
                let services = format!(
                    "[queue]\nkind = \"rabbitmq\"\nurl = \"{}\"\n\n[store]\nkind = \"redis\"\nurl = \"{redis_url}\"\n\n",
                    amqp.url
                );
                (Some(amqp), Some(redis), services)
            }
        };
        std::fs::write(&config, services + &settings(port, &options)).expect("the configuration can be written");
        let api = Api::new(format!("http://127.0.0.1:{port}"));
        let scheduler = {
            let mut command = Command::new(binary());
            match pair {
                Pair::Embedded => {
                    command.args(["dev", "--listen", &format!("127.0.0.1:{port}")]);
                    command.arg("--data").arg(folder.path().join("data"));
                }
                Pair::Real => {
                    command.arg("scheduler");
                }
            }
            command.arg("--config").arg(&config);
            Process::start(command, &folder.path().join("scheduler.log"))
        };
        let mut fleet = Self { api, scheduler, workers: Vec::new(), config, amqp, _redis: redis, folder, started: 0 };
        if pair == Pair::Real {
            for _ in 0..options.workers {
                fleet.add_worker();
            }
        }
        eventually("the scheduler to be ready", START_BOUND, || async {
            match fleet.api.try_get("/readyz").await {
                Ok(answer) if answer.status == 200 => Ok(()),
                other => Err(format!("{other:?}\n{}", fleet.scheduler.log())),
            }
        })
        .await;
        fleet
    }

    /// Starts one more worker.
    pub fn add_worker(&mut self) {
        self.started += 1;
        let mut command = Command::new(binary());
        command.arg("worker").arg("--config").arg(&self.config);
        self.workers.push(Process::start(command, &self.folder.path().join(format!("worker-{}.log", self.started))));
    }

    /// The process of the scheduler, which on [`Pair::Embedded`] is everything.
    pub fn scheduler(&mut self) -> &mut Process {
        &mut self.scheduler
    }

    /// Where the broker is, for tests that speak AMQP themselves.
    pub fn amqp_url(&self) -> &str {
        &self.amqp.as_ref().expect("the embedded queue has no URL").url
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }
}

fn settings(port: u16, options: &FleetOptions) -> String {
    let mut text = format!("[scheduler]\nlisten = \"127.0.0.1:{port}\"\n\n[worker]\n");
    if options.slots > 0 {
        text += &format!("slots = {}\n", options.slots);
    }
    if options.deliveries_max > 0 {
        text += &format!("deliveries_max = {}\n", options.deliveries_max);
    }
    text += "\n[fetch.upstreams]\n";
    for (host, url) in &options.upstreams {
        text += &format!("\"{host}\" = \"{url}\"\n");
    }
    text
}

/// A port that was free a moment ago.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("a bound listener has an address").port()
}

async fn start_redis(folder: &Path) -> (Process, String) {
    let port = free_port();
    let mut command = Command::new("redis-server");
    command.args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--appendonly", "yes", "--save", ""]);
    command.arg("--dir").arg(folder);
    let process = Process::start(command, &folder.join("redis.log"));
    eventually("Redis to listen", START_BOUND, || async {
        std::net::TcpStream::connect(("127.0.0.1", port)).map(drop).map_err(|error| error.to_string())
    })
    .await;
    (process, format!("redis://127.0.0.1:{port}/"))
}

/// A virtual host of the test's own on the broker that tests/run started.
struct VirtualHost {
    name: String,
    url: String,
    control: String,
}

impl VirtualHost {
    fn create() -> Self {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let variable = |name: &str| std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set: run tests/run"));
        let control = variable("TOOLFLEET_TEST_RABBITMQCTL");
        let broker = variable("TOOLFLEET_TEST_AMQP");
        let name = format!("fleet-{}-{}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        let (host, _) = broker.rsplit_once('/').expect("an AMQP URL ends in its virtual host");
        let made = Self { url: format!("{host}/{name}"), name, control };
        made.control(&["add_vhost", &made.name]);
        made.control(&["set_permissions", "-p", &made.name, "guest", ".*", ".*", ".*"]);
        made
    }

    fn control(&self, args: &[&str]) {
        let output = Command::new(&self.control)
            .args(args)
            .stdin(Stdio::null())
            .output()
            .unwrap_or_else(|error| panic!("{}: {error}", self.control));
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

impl Drop for VirtualHost {
    fn drop(&mut self) {
        // Left behind it costs memory of a broker that lives as long as the test run; no reason to fail a test.
        let _ = Command::new(&self.control).args(["delete_vhost", &self.name]).stdin(Stdio::null()).output();
    }
}
