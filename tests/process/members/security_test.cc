// A cluster with certificates by the real binaries: devices join by a token, train, come back
// without a flag; and peers that do not belong to it get nowhere, while a run goes on unharmed.

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/random.h"
#include "proto/crypto/authority.h"
#include "proto/crypto/join_client.h"
#include "proto/transport/grpc/control/grpc_control.h"
#include "proto/transport/grpc/control/grpc_members.h"
#include "proto/transport/grpc/data/grpc_transport.h"
#include "proto/transport/grpc/security/grpc_renew.h"
#include "proto/transport/link/address.h"
#include "tests/process/central_runs.h"
#include "tests/process/process.h"
#include "tests/transport/certified.h"
#include "tests/transport/control_recorders.h"

namespace runnel::security_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kTimeoutMs = 20'000;
constexpr int64_t kShortMs = 300;
constexpr int kCrowd = 1'000;
// Sanitizers keep what was freed for a while, or notes on each byte.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int64_t kMostGrowthKb = 450'000;
#else
constexpr int64_t kMostGrowthKb = 150'000;
#endif

// A certificate authority and the commands that use it.
class Home {
 public:
  Home() { Run({"init"}); }
  std::string path() const { return dir_ / "home"; }
  // Runs a command to a good end; what it printed.
  std::string Run(Words words) const {
    words.insert(words.begin(), "runnel-central");
    words.insert(words.end(), {"--home", path()});
    Process process(words);
    EXPECT_EQ(process.Wait(), 0) << process.err();
    return process.out();
  }
  std::string Token(const std::string& name) const {
    std::string token = Run({"token", "--name", name});
    token.erase(token.find_last_not_of('\n') + 1);
    return token;
  }
  GrpcSecurity Worker(const std::string& name) const {
    return SecurityOf(JoinedWorker(*Authority::Open(path(), SystemWallClock()).value(), name));
  }
  GrpcSecurity Operator() const { return SecurityOf(ReadIdentity(path() + "/operator").value()); }

 private:
  ScratchDir dir_;
};

const Words kTraining = {"--model",   "lenet",        "--quick", "--schedule",
                         "sync_1f1b", "--batch-size", "16",      "--max-batches",
                         "40",        "--eval-every", "-1",      "--micro-batches",
                         "4"};

// A run that waits for one worker beside its own.
class WaitingRun {
 public:
  explicit WaitingRun(const Home& home, const std::string& listen = "127.0.0.1:0")
      : central_(With(With({"runnel-central", "train", "--home", home.path(), "--workers", "1",
                            "--listen", listen, "--summary", dir_ / "summary.json"},
                           kTraining),
                      {})) {
    EXPECT_TRUE(central_.WaitForOutput("--join TOKEN@")) << central_.err();
    control_ = WordAfter(central_.out(), "runnel-worker --central ");
    door_ = WordAfter(central_.out(), "--join TOKEN@");
  }
  Process& central() { return central_; }
  const std::string& control() const { return control_; }
  const std::string& door() const { return door_; }
  std::string Weights() {
    EXPECT_EQ(central_.Wait(), 0) << central_.out() << central_.err();
    return Summary(dir_ / "summary.json").value("weights_sha256", "");
  }

 private:
  ScratchDir dir_;
  Process central_;
  std::string control_;
  std::string door_;
};

std::string PlainWeights() {
  return Weights(With(With({"train"}, kTraining), {"--local-workers", "2"}));
}

TEST(SecureCluster, ADeviceJoinsOnceAndComesBackWithoutAFlag) {
  const Home home;
  const ScratchDir device;
  const std::string token = home.Token("pi-1");
  std::string control;
  const std::string expected = PlainWeights();
  {
    WaitingRun run(home);
    control = run.control();
    // No list of processes shows the token.
    const std::string order = device / "order";
    std::ofstream(order) << token << "@" << run.door() << "\n";
    Process worker({"runnel-worker", "--once", "--join", "-", "--state-dir", device.path()},
                   [&] { dup2(open(order.c_str(), O_RDONLY), STDIN_FILENO); });
    EXPECT_EQ(run.Weights(), expected) << "encryption changes no byte";
    EXPECT_EQ(worker.Wait(), 0) << worker.err();
    EXPECT_THAT(run.central().out(), HasSubstr("pi-1"));
  }
  WaitingRun run(home, control);
  Process again({"runnel-worker", "--once", "--join", token + "@" + run.door(), "--state-dir",
                 device / "other"});
  EXPECT_EQ(again.Wait(), 2);
  EXPECT_THAT(again.err(), HasSubstr("the token was used already"));
  Process worker({"runnel-worker", "--once", "--state-dir", device.path()});
  EXPECT_EQ(run.Weights(), expected);
  EXPECT_EQ(worker.Wait(), 0) << worker.err();
}

TEST(SecureCluster, ARevokedDeviceIsOut) {
  const Home home;
  const ScratchDir device;
  WaitingRun run(home);
  {
    Process worker({"runnel-worker", "--join", home.Token("pi-1") + "@" + run.door(), "--state-dir",
                    device.path(), "--name", "pi-2"});
    EXPECT_EQ(worker.Wait(), 2);
    EXPECT_THAT(worker.err(), HasSubstr("the token is for pi-1"));
  }
  const GrpcSecurity security = home.Worker("pi-1");
  EXPECT_THAT(home.Run({"devices", "--central", run.control()}), HasSubstr("step 0"));
  const absl::Status as_worker = MembersAt(run.control(), security, kTimeoutMs).value().pause(true);
  EXPECT_TRUE(absl::IsPermissionDenied(as_worker)) << as_worker;
  EXPECT_EQ(home.Run({"revoke", "pi-1", "--central", run.control()}),
            absl::StrCat("revoked pi-1 at ", run.control(), "\n"));
  EXPECT_TRUE(absl::IsPermissionDenied(
      RenewCertificate(run.control(), security, NewRequest(NewKey().value()).value(), kTimeoutMs)
          .status()));
  Process nobody({"runnel-central", "revoke", "pi-9", "--home", home.path()});
  EXPECT_EQ(nobody.Wait(), 2);
  run.central().Signal(SIGINT);
}

// ---- hostile peers

// Ports on which a process listens.
std::vector<int> ListeningPorts(pid_t pid) {
  std::vector<std::string> sockets;
  std::error_code ignored;
  for (const auto& entry :
       std::filesystem::directory_iterator(absl::StrCat("/proc/", pid, "/fd"), ignored)) {
    const std::string target = std::filesystem::read_symlink(entry.path(), ignored).string();
    if (target.starts_with("socket:[")) sockets.push_back(target.substr(8, target.size() - 9));
  }
  std::vector<int> ports;
  for (const char* name : {"tcp", "tcp6"}) {
    std::ifstream table(absl::StrCat("/proc/", pid, "/net/", name));
    for (std::string line; std::getline(table, line);) {
      const std::vector<std::string> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
      if (words.size() < 10 || words[3] != "0A") continue;
      if (std::find(sockets.begin(), sockets.end(), words[9]) == sockets.end()) continue;
      const std::string port = words[1].substr(words[1].find(':') + 1);
      ports.push_back(static_cast<int>(std::stoul(port, nullptr, 16)));
    }
  }
  return ports;
}

int64_t ResidentKb(pid_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/status"));
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("VmHWM:")) return std::stoll(line.substr(6));
  }
  return 0;
}

class Raw {
 public:
  explicit Raw(int port) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
    (void)!connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address));
  }
  ~Raw() { close(fd_); }
  Raw(const Raw&) = delete;
  Raw& operator=(const Raw&) = delete;
  void Say(const std::string& bytes) {
    (void)!send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }

 private:
  const int fd_;
};

std::vector<std::string> StrangeBytes() {
  std::string noise;
  const CounterRandom random(11, RandomPurpose::kTest, 0, 0);
  for (uint64_t i = 0; i < 4096; ++i) noise.push_back(static_cast<char>(random.Bits(i) & 0xFF));
  const std::string lengths(65'536, '\xFF');
  return {noise,
          // TLS records, handshakes and HTTP/2 frames as long as can be said.
          std::string("\x16\x03\x01\xFF\xFF\x01\xFF\xFF\xFF\x03\x03", 11) + lengths,
          "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + lengths, "RNL1" + lengths};
}

void ThrowBytesAt(const std::vector<int>& ports) {
  for (const int port : ports) {
    for (const std::string& bytes : StrangeBytes()) {
      for (int i = 0; i < 5; ++i) Raw(port).Say(bytes);
    }
  }
}

// Holds a thousand connections; each has begun a handshake and says no more.
class Crowd {
 public:
  explicit Crowd(const std::vector<int>& ports) {
    for (int i = 0; i < kCrowd; ++i) {
      connections_.push_back(std::make_unique<Raw>(ports[static_cast<size_t>(i) % ports.size()]));
      connections_.back()->Say(std::string("\x16\x03\x01\x02", 4));
    }
  }

 private:
  std::vector<std::unique_ptr<Raw>> connections_;
};

void ExpectNoWayIn(const Home& home, const WaitingRun& run) {
  const Home other;
  const auto join = [&](const GrpcSecurity& security, const std::string& name,
                        int64_t patience_ms) {
    const auto transport = MakeGrpcControl({.security = security});
    WorkerRecorder seen;
    const auto worker = transport->Connect(run.control(), patience_ms, &seen);
    if (!worker.ok()) return worker.status();
    (*worker)->Send(HelloOf(name)).IgnoreError();
    return seen.WaitForClosed();
  };
  const GrpcSecurity member = home.Worker("mallory");
  EXPECT_FALSE(join({}, "pi-1", kShortMs).ok()) << "no certificate";
  EXPECT_FALSE(join(other.Worker("pi-1"), "pi-1", kShortMs).ok()) << "another cluster's";
  EXPECT_TRUE(absl::IsPermissionDenied(join(home.Operator(), "operator", kTimeoutMs)));
  EXPECT_TRUE(absl::IsPermissionDenied(join(member, "pi-1", kTimeoutMs))) << "another's name";
  EXPECT_TRUE(absl::IsPermissionDenied(RevokeAt(run.control(), member, "mallory", kTimeoutMs)));
}

void ExpectTokensFail(const Home& home, const WaitingRun& run, const JoinToken& used) {
  const Address door = ParseAddress(run.door()).value();
  const auto join = [&](const JoinToken& token) {
    return JoinCluster({.token = token,
                        .host = door.host,
                        .port = door.port,
                        .name = "mallory-2",
                        .timeout_ms = kTimeoutMs})
        .status();
  };
  // Made two hours ago, for one hour.
  const auto past = Authority::Open(home.path(), [] { return SystemWallClock()() - 7200; }).value();
  EXPECT_THAT(std::string(join(past->NewToken("", 3600).value()).message()), HasSubstr("expired"));
  EXPECT_THAT(std::string(join(used).message()), HasSubstr("used already"));
  EXPECT_TRUE(absl::IsPermissionDenied(join(NewJoinToken(used.authority_hash))));
}

// With a certificate of the cluster, at a port where another stage is awaited.
void SendTensorFirst(const Home& home, const std::vector<int>& ports) {
  class Silent final : public ConnectionObserver {
    absl::Status OnHeader(const FrameHeader&) override { return absl::OkStatus(); }
    void OnFrame(Frame) override {}
    void OnClosed(const absl::Status&) override {}
  };
  Silent silent;
  Frame frame;
  frame.header.kind = FrameKind::kActivation;
  frame.header.samples = 16;
  BufferPool pool;
  frame.payload = pool.Allocate(size_t{64} << 20);
  SealFrame(frame);
  const auto transport = MakeGrpcTransport({.security = home.Worker("mallory-3")});
  for (const int port : ports) {
    for (const char* peer : {"worker/local-000", "worker/pi-1"}) {
      const auto connection =
          transport->Dial({absl::StrCat("127.0.0.1:", port), peer}, &silent, {});
      if (connection.ok()) (*connection)->Send(frame).IgnoreError();
    }
  }
}

size_t CountOf(const std::string& text, const std::string& word) {
  size_t count = 0;
  for (size_t at = text.find(word); at != text.npos; at = text.find(word, at + 1)) ++count;
  return count;
}

TEST(SecureCluster, HostilePeersAreRefusedAndTheRunIsUnharmed) {
  rlimit files = {};
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = std::min<rlim_t>(files.rlim_max, 8192);
  setrlimit(RLIMIT_NOFILE, &files);
  const Home home;
  const ScratchDir device;
  const std::string token = home.Token("pi-1");
  WaitingRun run(home);
  // While it waits.
  const std::vector<int> central_ports = ListeningPorts(run.central().pid());
  ASSERT_EQ(central_ports.size(), 2u) << "control and join door";
  ThrowBytesAt(central_ports);
  std::optional<Crowd> crowd(std::in_place, central_ports);
  Process worker({"runnel-worker", "--once", "--join", token + "@" + run.door(), "--state-dir",
                  device.path()});
  ASSERT_TRUE(run.central().WaitForOutput("layers")) << run.central().out() << run.central().err();
  // While it trains.
  std::vector<pid_t> processes = run.central().Children();
  processes.push_back(worker.pid());
  std::vector<int> ports;
  for (const pid_t pid : processes) {
    for (const int port : ListeningPorts(pid)) ports.push_back(port);
  }
  ThrowBytesAt(ports);
  SendTensorFirst(home, ports);
  crowd.reset();
  EXPECT_EQ(run.Weights(), PlainWeights());
  EXPECT_EQ(worker.Wait(), 0) << worker.err();
  EXPECT_LE(CountOf(run.central().err(), "refused: "), 25u) << run.central().err();
}

TEST(SecureCluster, ThereIsNoWayInWithoutTheRightCertificate) {
  const Home home;
  const std::string token = home.Token("pi-1");
  const JoinToken used = ParseJoinToken(token).value();
  WaitingRun run(home);
  const pid_t central = run.central().pid();
  const int64_t before_kb = ResidentKb(central);
  const ScratchDir device;
  ExpectNoWayIn(home, run);
  {
    const std::vector<int> ports = ListeningPorts(central);
    const Crowd crowd(ports);
    ThrowBytesAt(ports);
    ExpectNoWayIn(home, run);
  }
  const int64_t growth_kb = ResidentKb(central) - before_kb;
  EXPECT_LE(growth_kb, kMostGrowthKb);
  RecordProperty("central_growth_kb", static_cast<int>(growth_kb));
  std::printf("central grew by %.1f MB under %d connections\n",
              static_cast<double>(growth_kb) / 1e3, kCrowd);
  Process worker({"runnel-worker", "--once", "--join", token + "@" + run.door(), "--state-dir",
                  device.path()});
  ASSERT_TRUE(run.central().WaitForOutput("layers")) << run.central().out() << run.central().err();
  ExpectTokensFail(home, run, used);
  EXPECT_EQ(run.Weights(), PlainWeights());
  EXPECT_EQ(worker.Wait(), 0) << worker.err();
  const std::string log = run.central().err();
  EXPECT_THAT(log, HasSubstr("does not allow this call"));
  EXPECT_THAT(log, HasSubstr("says to be pi-1"));
}

// Where nothing is encrypted another user of the host is not a worker either.
TEST(LoopbackCluster, AWorkerWithoutTheUsersSecretIsRefused) {
  const ScratchDir theirs;
  Process central(
      With({"runnel-central", "train", "--workers", "1", "--listen", "127.0.0.1:0"}, kTraining));
  const std::string control = WorkersAddress(central);
  Process stranger({"runnel-worker", "--central", control, "--name", "stranger"},
                   [&] { setenv("RUNNEL_RUNTIME_DIR", theirs.path().c_str(), 1); });
  EXPECT_EQ(stranger.Wait(), 2);
  EXPECT_THAT(stranger.err(), HasSubstr("showed no join secret"));
  Process worker({"runnel-worker", "--once", "--central", control, "--name", "w"});
  EXPECT_EQ(central.Wait(), 0) << central.err();
  EXPECT_EQ(worker.Wait(), 0) << worker.err();
}

}  // namespace
}  // namespace runnel::security_test
