#include "central/display/admin_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "central/display/admin_page.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace runnel::admin_server_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// A connection to 127.0.0.1:port, -1 if there is nobody.
int Connect(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0) return fd;
  close(fd);
  return -1;
}

// The whole answer, head and body; empty if there is nobody.
std::string Ask(int port, const std::string& request) {
  const int fd = Connect(port);
  if (fd < 0) return "";
  EXPECT_EQ(write(fd, request.data(), request.size()), static_cast<ssize_t>(request.size()));
  std::string answer;
  char buffer[4096];
  for (ssize_t got = 0; (got = read(fd, buffer, sizeof(buffer))) > 0;) {
    answer.append(buffer, static_cast<size_t>(got));
  }
  close(fd);
  return answer;
}

std::string Get(int port, const std::string& path) {
  return Ask(port, absl::StrCat("GET ", path, " HTTP/1.1\r\nHost: localhost\r\n\r\n"));
}

struct Running {
  std::atomic<bool> ready = false, alive = true;
  std::vector<std::string> carried_out;  // orders
  bool is_tracing = true;
  std::string trace;  // nothing yet; the next question's answer is {}
  std::unique_ptr<AdminServer> server;

  Running() {
    AdminCallbacks callbacks;
    callbacks.metrics_text = [] { return std::string("runnel_up 1\n"); };
    callbacks.state_json = [] { return std::string("{\"step\":7}"); };
    callbacks.ready = [this] { return ready.load(); };
    callbacks.alive = [this] { return alive.load(); };
    callbacks.orders.drain = [this](const std::string& name) {
      carried_out.push_back("drain " + name);
      return name == "nobody" ? absl::NotFoundError("no worker named nobody") : absl::OkStatus();
    };
    callbacks.orders.pause = [this](bool paused) {
      carried_out.push_back(paused ? "pause" : "continue");
      return absl::OkStatus();
    };
    callbacks.orders.replan = [this] {
      carried_out.emplace_back("replan");
      return absl::OkStatus();
    };
    callbacks.orders.stop = [this](bool is_sure) {
      if (!is_sure) return absl::FailedPreconditionError("loses the weights");
      carried_out.emplace_back("stop");
      return absl::OkStatus();
    };
    callbacks.orders.what_if = [](const std::string& assumption) -> absl::StatusOr<std::string> {
      if (assumption != "leave:pi-1") return absl::InvalidArgumentError("is not understood");
      return "what if leave:pi-1: slower\n";
    };
    callbacks.orders.trace = [this](int64_t window_ms) -> absl::StatusOr<std::string> {
      if (window_ms > 0) carried_out.push_back(absl::StrCat("trace ", window_ms));
      if (!is_tracing) return absl::NotFoundError("no trace was begun");
      return std::exchange(trace, "{}");
    };
    auto started = AdminServer::Start(0, callbacks);
    EXPECT_TRUE(started.ok()) << started.status();
    if (started.ok()) server = *std::move(started);
  }
};

TEST(AdminServer, Answers) {
  Running running;
  ASSERT_NE(running.server, nullptr);
  const int port = running.server->port();
  EXPECT_GT(port, 0);
  const std::string metrics = Get(port, "/metrics");
  EXPECT_THAT(metrics, StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(metrics, HasSubstr("Content-Type: text/plain; version=0.0.4"));
  EXPECT_THAT(metrics, HasSubstr("\r\n\r\nrunnel_up 1\n"));
  EXPECT_THAT(Get(port, "/healthz"), HasSubstr("\r\n\r\nok\n"));
  const std::string state = Get(port, "/state");
  EXPECT_THAT(state, HasSubstr("Content-Type: application/json"));
  EXPECT_THAT(state, HasSubstr("{\"step\":7}"));
  const std::string page = Get(port, "/");
  EXPECT_THAT(page, HasSubstr("Content-Type: text/html"));
  EXPECT_THAT(page, HasSubstr("Content-Security-Policy: default-src 'none'"));
  EXPECT_THAT(page, HasSubstr("fetch(\"/state\""));
  EXPECT_THAT(page, HasSubstr("</script>"));
}

// The page and a report of it stand alone: the only address in them names a vocabulary.
TEST(AdminPage, KnowsNoOtherHost) {
  std::string page(AdminPage());
  EXPECT_THAT(page, Not(HasSubstr("@PAGE")));
  const std::string vocabulary = "http://www.w3.org/2000/svg";
  const size_t at = page.find(vocabulary);
  ASSERT_NE(at, page.npos);
  page.erase(at, vocabulary.size());
  // Opened in a window of its own when the user asks for it.
  const std::string perfetto = "https://ui.perfetto.dev";
  const size_t opened = page.find(perfetto);
  ASSERT_NE(opened, page.npos);
  page.erase(opened, perfetto.size());
  EXPECT_THAT(page, Not(HasSubstr("://")));
  EXPECT_THAT(page, Not(HasSubstr("src=")));
  EXPECT_THAT(page, Not(HasSubstr("import ")));
  EXPECT_THAT(page, Not(HasSubstr("innerHTML"))) << "texts of others are no markup";
}

TEST(AdminPage, AReportHasItsStateInside) {
  const std::string report = ReportPage(R"({"what":"</script><b>"})");
  EXPECT_THAT(report, HasSubstr(R"("report">{"what":"\u003c/script>\u003cb>"}</script>)"));
  EXPECT_THAT(std::string(AdminPage()), HasSubstr(R"("report">null</script>)"));
}

TEST(AdminServer, KnowsItsReader) {
  Running running;
  Get(running.server->port(), "/");
  Get(running.server->port(), "/metrics");
  EXPECT_FALSE(running.server->has_reader()) << "a page asks for /state";
  Get(running.server->port(), "/state");
  EXPECT_TRUE(running.server->has_reader());
}

std::string Post(const Running& running, const std::string& path, const std::string& token) {
  return Ask(running.server->port(),
             absl::StrCat("POST ", path, " HTTP/1.1\r\nHost: localhost\r\nX-Runnel-Token: ", token,
                          "\r\nContent-Length: 0\r\n\r\n"));
}

TEST(AdminServer, TakesOrdersOfWhoHasTheToken) {
  Running running;
  const std::string& token = running.server->token();
  EXPECT_EQ(token.size(), 32u);
  for (const std::string& wrong : {std::string(), std::string("guess"), std::string(32, '0')}) {
    for (const char* order : {"pause", "replan", "stop?sure=yes"})
      EXPECT_THAT(Post(running, absl::StrCat("/orders/", order), wrong),
                  StartsWith("HTTP/1.1 403"));
  }
  EXPECT_THAT(Get(running.server->port(), "/orders/pause"), StartsWith("HTTP/1.1 404"));
  EXPECT_TRUE(running.carried_out.empty());
  for (const char* path : {"/orders/pause", "/orders/continue", "/orders/drain?name=pi-1",
                           "/orders/trace?seconds=0.5"})
    EXPECT_THAT(Post(running, path, token), StartsWith("HTTP/1.1 204")) << path;
  EXPECT_THAT(running.carried_out,
              ::testing::ElementsAre("pause", "continue", "drain pi-1", "trace 500"));
  EXPECT_THAT(Post(running, "/orders/what-if?assumption=leave%3Api-1", token),
              HasSubstr("\r\n\r\nwhat if leave:pi-1: slower\n"));
  EXPECT_THAT(Post(running, "/orders/replan", token), HasSubstr("the next barrier plans anew"));
  EXPECT_THAT(Post(running, "/orders/stop", token), StartsWith("HTTP/1.1 409"));
  EXPECT_THAT(Post(running, "/orders/stop?sure=1", token), StartsWith("HTTP/1.1 409"));
  EXPECT_EQ(running.carried_out.back(), "replan");
  EXPECT_THAT(Post(running, "/orders/stop?sure=yes", token), HasSubstr("ends at the next barrier"));
  EXPECT_EQ(running.carried_out.back(), "stop");
  EXPECT_THAT(Post(running, "/orders/what-if?assumption=x", token), StartsWith("HTTP/1.1 400"));
  EXPECT_THAT(Post(running, "/orders/drain?name=nobody", token), StartsWith("HTTP/1.1 404"));
  for (const char* path : {"/orders/drain?name=../x", "/orders/drain", "/orders/trace",
                           "/orders/trace?seconds=61", "/orders/trace?seconds=nan"})
    EXPECT_THAT(Post(running, path, token), StartsWith("HTTP/1.1 400")) << path;
}

TEST(AdminServer, HandsTheLastTraceOut) {
  Running running;
  running.is_tracing = false;
  EXPECT_THAT(Get(running.server->port(), "/trace"), StartsWith("HTTP/1.1 404"));
  running.is_tracing = true;
  EXPECT_THAT(Get(running.server->port(), "/trace"), StartsWith("HTTP/1.1 204"));
  EXPECT_THAT(Get(running.server->port(), "/trace"), HasSubstr("\r\n\r\n{}"));
}

TEST(AdminServer, ReadyOnceTrainingHasBegun) {
  Running running;
  EXPECT_THAT(Get(running.server->port(), "/readyz"), StartsWith("HTTP/1.1 503"));
  running.ready = true;
  EXPECT_THAT(Get(running.server->port(), "/readyz"), StartsWith("HTTP/1.1 200"));
}

TEST(AdminServer, AStuckLoopIsNotHealthy) {
  Running running;
  running.alive = false;
  EXPECT_THAT(Get(running.server->port(), "/healthz"), StartsWith("HTTP/1.1 503"));
}

// A site whose name leads to 127.0.0.1 could read them with a browser of this host.
TEST(AdminServer, AnswersByThisHostsNamesOnly) {
  Running running;
  const int port = running.server->port();
  const auto ask = [port](const std::string& host) {
    return Ask(port, absl::StrCat("GET /state HTTP/1.1\r\nHost: ", host, "\r\n\r\n"));
  };
  for (const char* host : {"localhost", "LOCALHOST:1", "127.0.0.1:9090", "[::1]:80"})
    EXPECT_THAT(ask(host), StartsWith("HTTP/1.1 200")) << host;
  for (const char* host : {"rebound.example:9090", "localhost.example", "127.0.0.1.example"})
    EXPECT_THAT(ask(host), StartsWith("HTTP/1.1 403")) << host;
  for (const char* origin : {"http://evil.example", "null", "https://localhost.evil.example"})
    EXPECT_THAT(ask(absl::StrCat("localhost\r\nOrigin: ", origin)), StartsWith("HTTP/1.1 403"))
        << origin;
  EXPECT_THAT(ask("localhost\r\nOrigin: http://localhost:9090"), StartsWith("HTTP/1.1 200"));
}

TEST(AdminServer, BadRequests) {
  Running running;
  const int port = running.server->port();
  EXPECT_THAT(Get(port, "/nothing"), StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(Get(port, "/../../etc/passwd"), StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(Ask(port, "POST /state HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"),
              StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(
      Ask(port, "POST /state HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999\r\n\r\n"),
      StartsWith("HTTP/1.1 4"));
  EXPECT_THAT(Ask(port, "nonsense\r\n\r\n"), StartsWith("HTTP/1.1 400"));
  EXPECT_THAT(Get(port, "/healthz"), StartsWith("HTTP/1.1 200"));
}

TEST(AdminServer, PortInUse) {
  Running running;
  const int port = running.server->port();
  const absl::Status status = AdminServer::Start(port, {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat(port)));
  EXPECT_THAT(Get(port, "/healthz"), StartsWith("HTTP/1.1 200"));
}

TEST(AdminServer, PortsThatAreNone) {
  for (int port : {-1, 65536}) {
    EXPECT_EQ(AdminServer::Start(port, {}).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST(AdminServer, StopsAndFreesThePort) {
  int port = 0;
  {
    Running running;
    port = running.server->port();
    EXPECT_THAT(Get(port, "/healthz"), StartsWith("HTTP/1.1 200"));
  }
  EXPECT_EQ(Connect(port), -1);
  auto again = AdminServer::Start(port, {});
  EXPECT_TRUE(again.ok()) << again.status();
}

TEST(AdminServer, EndsWithAnIdleConnectionOpen) {
  auto running = std::make_unique<Running>();
  const int fd = Connect(running->server->port());
  ASSERT_GE(fd, 0);
  running.reset();
  close(fd);
}

TEST(AdminServer, StartsAndStopsManyTimes) {
  for (int i = 0; i < 50; ++i) Running running;
}

}  // namespace
}  // namespace runnel::admin_server_test
