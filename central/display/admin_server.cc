#include "central/display/admin_server.h"

#include <httplib.h>
#include <sys/socket.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <thread>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "central/display/admin_page.h"
#include "proto/base/figures/span.h"
#include "proto/base/status_macros.h"
#include "proto/base/worker_name.h"
#include "proto/crypto/https.h"
#include "proto/crypto/sha256.h"

namespace runnel {
namespace {

using Right = AdminAccess::Right;

constexpr char kLoopback[] = "127.0.0.1";
constexpr int kThreads = 4;
constexpr size_t kMaxRequestBytes = 1 << 16;
constexpr int64_t kReaderNs = 5'000'000'000;
constexpr size_t kTokenBytes = 16;
constexpr char kWhoMayRead[] =
    "ask with the read token (Authorization: Bearer TOKEN) or an operator's certificate\n";
constexpr double kLeastTraceS = 0.001;
constexpr double kMostTraceS = static_cast<double>(kMaxTraceNs) * 1e-9;

int64_t NowNs() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

absl::Status BindError(const std::string& host, int port, int error_number) {
  const std::string what = host == kLoopback
                               ? absl::StrCat("metrics port ", port, ": ")
                               : absl::StrCat("--http-listen ", host, ", port ", port, ": ");
  if (error_number == EADDRINUSE) {
    return absl::AlreadyExistsError(
        absl::StrCat(what, "is in use by another program; choose another, or 0 for any free one"));
  }
  if (error_number == EACCES) return absl::PermissionDeniedError(what + strerror(error_number));
  if (host != kLoopback)
    return absl::InvalidArgumentError(absl::StrCat(what, "is no address of this host"));
  return absl::UnavailableError(absl::StrCat(what, "cannot listen: ", strerror(error_number)));
}

int HttpStatus(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return 204;
    case absl::StatusCode::kNotFound:
      return 404;
    case absl::StatusCode::kFailedPrecondition:
      return 409;
    case absl::StatusCode::kUnavailable:
      return 503;
    default:
      return 400;
  }
}

void Answer(const absl::Status& status, httplib::Response& response) {
  response.status = HttpStatus(status);
  if (!status.ok()) response.set_content(absl::StrCat(status.message(), "\n"), "text/plain");
}

// Holds nothing of the run.
bool IsPublic(const std::string& path) {
  return path == "/" || path == "/healthz" || path == "/readyz";
}

}  // namespace

struct AdminServer::Impl {
  Impl(AdminCallbacks given, std::optional<AdminNetwork> network)
      : callbacks(std::move(given)),
        access(std::move(network), absl::BytesToHexString(RandomBytes(kTokenBytes))) {}

  // Makes the server of the library.
  absl::Status Make() {
    if (!access.network().has_value()) {
      server = std::make_unique<httplib::Server>();
      return absl::OkStatus();
    }
    absl::Status prepared;
    server = std::make_unique<httplib::SSLServer>([&](SSL_CTX& context) {
      prepared = PrepareHttps(access.network()->identity, context);
      return prepared.ok();
    });
    return prepared;
  }

  void Configure() {
    server->new_task_queue = [] { return new httplib::ThreadPool(kThreads); };
    // The library's default lets two programs share the port.
    server->set_socket_options([](socket_t sock) {
      const int yes = 1;
      setsockopt(sock, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    });
    // One request a connection, so that an idle browser does not delay the end.
    server->set_keep_alive_max_count(1);
    server->set_keep_alive_timeout(1);
    server->set_read_timeout(2);
    server->set_payload_max_length(kMaxRequestBytes);
    server->set_default_headers(
        {{"Cache-Control", "no-store"}, {"X-Content-Type-Options", "nosniff"}});
  }

  void Route() {
    server->set_pre_routing_handler(
        [this](const httplib::Request& request, httplib::Response& response) {
          const std::string reason = access.ForeignReason(request);
          const bool may_read = IsPublic(request.path) || access.RightOf(request) != Right::kNone;
          if (reason.empty() && may_read) return httplib::Server::HandlerResponse::Unhandled;
          response.status = reason.empty() ? 401 : 403;
          if (reason.empty()) response.set_header("WWW-Authenticate", "Bearer");
          response.set_content(reason.empty() ? kWhoMayRead : reason, "text/plain");
          return httplib::Server::HandlerResponse::Handled;
        });
    server->Get("/", [](const httplib::Request&, httplib::Response& response) {
      const absl::string_view page = AdminPage();
      // The browser asks nobody else for anything, whatever texts the page shows.
      response.set_header("Content-Security-Policy",
                          "default-src 'none'; script-src 'unsafe-inline'; style-src "
                          "'unsafe-inline'; img-src data:; connect-src 'self'; base-uri 'none'; "
                          "form-action 'none'; frame-ancestors 'none'");
      response.set_content(page.data(), page.size(), "text/html; charset=utf-8");
    });
    server->Get("/state", [this](const httplib::Request&, httplib::Response& response) {
      asked_ns = NowNs();
      response.set_content(callbacks.state_json(), "application/json");
    });
    server->Get("/metrics", [this](const httplib::Request&, httplib::Response& response) {
      response.set_content(callbacks.metrics_text(), "text/plain; version=0.0.4; charset=utf-8");
    });
    server->Get("/healthz", [this](const httplib::Request&, httplib::Response& response) {
      const bool alive = callbacks.alive();
      response.status = alive ? 200 : 503;
      response.set_content(alive ? "ok\n" : "stuck\n", "text/plain");
    });
    server->Get("/readyz", [this](const httplib::Request&, httplib::Response& response) {
      const bool ready = callbacks.ready();
      response.status = ready ? 200 : 503;
      response.set_content(ready ? "ready\n" : "starting\n", "text/plain");
    });
  }

  void RouteOrders() {
    using TextOr = absl::StatusOr<std::string>;
    const auto answer = [this](const char* name,
                               std::function<TextOr(const httplib::Request&)> carry_out) {
      server->Post(absl::StrCat("/orders/", name),
                   [this, carry_out](const httplib::Request& request, httplib::Response& response) {
                     if (access.RightOf(request) != Right::kOrder) {
                       response.status = 403;
                       return response.set_content(
                           "orders need the page's address as central printed it, with what is "
                           "behind #\n",
                           "text/plain");
                     }
                     const TextOr text = carry_out(request);
                     if (!text.ok() || text->empty()) return Answer(text.status(), response);
                     response.set_content(*text, "text/plain; charset=utf-8");
                   });
    };
    const auto order = [&answer](const char* name,
                                 std::function<absl::Status(const httplib::Request&)> carry_out) {
      answer(name, [carry_out](const httplib::Request& request) -> TextOr {
        const absl::Status status = carry_out(request);
        return status.ok() ? TextOr(std::string()) : TextOr(status);
      });
    };
    const MemberCalls& orders = callbacks.orders;
    if (orders.drain == nullptr || orders.pause == nullptr || orders.trace == nullptr ||
        orders.what_if == nullptr || orders.stop == nullptr || orders.replan == nullptr) {
      return;
    }
    order("drain", [&orders](const httplib::Request& request) {
      const std::string name = request.get_param_value("name");
      const absl::Status valid = CheckWorkerName("name", name);
      return valid.ok() ? orders.drain(name) : valid;
    });
    order("pause", [&orders](const httplib::Request&) { return orders.pause(true); });
    order("continue", [&orders](const httplib::Request&) { return orders.pause(false); });
    order("trace", [&orders](const httplib::Request& request) {
      double seconds = 0;
      if (!absl::SimpleAtod(request.get_param_value("seconds"), &seconds) ||
          !(seconds >= kLeastTraceS && seconds <= kMostTraceS)) {
        return absl::InvalidArgumentError(
            absl::StrCat("seconds: a window takes ", kLeastTraceS, " to ", kMostTraceS));
      }
      return orders.trace(static_cast<int64_t>(seconds * 1e3)).status();
    });
    answer("replan", [&orders](const httplib::Request&) -> TextOr {
      RUNNEL_RETURN_IF_ERROR(orders.replan());
      return "the next barrier plans anew";
    });
    answer("stop", [&orders](const httplib::Request& request) -> TextOr {
      RUNNEL_RETURN_IF_ERROR(orders.stop(request.get_param_value("sure") == "yes"));
      return "training ends at the next barrier";
    });
    answer("what-if", [&orders](const httplib::Request& request) {
      return orders.what_if(request.get_param_value("assumption"));
    });
    server->Get("/trace", [&orders](const httplib::Request&, httplib::Response& response) {
      const absl::StatusOr<std::string> trace = orders.trace(0);
      if (!trace.ok() || trace->empty()) return Answer(trace.status(), response);
      response.set_header("Content-Disposition", "attachment; filename=runnel-trace.json");
      response.set_content(*trace, "application/json");
    });
  }

  absl::Status Bind(int wanted) {
    errno = 0;
    const std::string host = access.network().has_value() ? access.network()->host : kLoopback;
    port = wanted == 0 ? server->bind_to_any_port(host.c_str())
                       : (server->bind_to_port(host.c_str(), wanted) ? wanted : -1);
    return port > 0 ? absl::OkStatus() : BindError(host, wanted, errno);
  }

  void Listen() {
    thread = std::thread([this] {
      server->listen_after_bind();
      ended = true;
    });
    // stop() does nothing before the loop runs; it begins at once.
    while (!server->is_running() && !ended) std::this_thread::yield();
  }

  const AdminCallbacks callbacks;
  const AdminAccess access;
  std::unique_ptr<httplib::Server> server;
  std::atomic<bool> ended = false;
  std::atomic<int64_t> asked_ns = 0;  // for /state; 0: never
  std::thread thread;
  int port = 0;
};

absl::StatusOr<std::unique_ptr<AdminServer>> AdminServer::Start(int port,
                                                                AdminCallbacks callbacks) {
  return Serve(std::make_unique<Impl>(std::move(callbacks), std::nullopt), port);
}

absl::StatusOr<std::unique_ptr<AdminServer>> AdminServer::StartOnNetwork(int port,
                                                                         AdminNetwork network,
                                                                         AdminCallbacks callbacks) {
  if (network.read_token.empty()) return absl::InvalidArgumentError("the read token is empty");
  return Serve(std::make_unique<Impl>(std::move(callbacks), std::move(network)), port);
}

absl::StatusOr<std::unique_ptr<AdminServer>> AdminServer::Serve(std::unique_ptr<Impl> impl,
                                                                int port) {
  if (port < 0 || port > 65535)
    return absl::InvalidArgumentError(absl::StrCat("metrics port ", port, ": must be 0 to 65535"));
  RUNNEL_RETURN_IF_ERROR(impl->Make());
  impl->Configure();
  impl->Route();
  impl->RouteOrders();
  RUNNEL_RETURN_IF_ERROR(impl->Bind(port));
  impl->Listen();
  return std::unique_ptr<AdminServer>(new AdminServer(std::move(impl)));
}

AdminServer::AdminServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

AdminServer::~AdminServer() {
  impl_->server->stop();
  impl_->thread.join();
}

int AdminServer::port() const { return impl_->port; }

const std::string& AdminServer::token() const { return impl_->access.order_token(); }

bool AdminServer::has_reader() const {
  const int64_t asked_ns = impl_->asked_ns;
  return asked_ns != 0 && NowNs() - asked_ns < kReaderNs;
}

}  // namespace runnel
