#pragma once

// The HTTP side of central: on loopback in plain text, elsewhere over TLS to who may read
// (admin_access.h). A page of another site that a browser on this host shows gets nothing: it would
// ask by its own name (Host, Origin).
//
//   GET /         the page that shows /state, refreshed by itself
//   GET /state    JSON
//   GET /metrics  Prometheus' text format
//   GET /healthz  200 "ok", or 503 "stuck" where the run's loop has not turned for long
//   GET /readyz   200 "ready" once training has begun, else 503 "starting"
//   GET /trace    the last trace, for Perfetto; 204 while it is under way, 404 if there is none
//   POST /orders/drain?name=WORKER, /orders/pause, /orders/continue, /orders/trace?seconds=S,
//      and, answered with text, /orders/replan, /orders/stop (409 where that loses the weights,
//      unless ?sure=yes), /orders/what-if?assumption=A
//                 as an operator's commands; 403 without the header X-Runnel-Token, whose value
//                 stands behind the # of the page's address where the user may give orders
//
// Over TLS /state, /metrics, /trace and orders answer 401 to who may not read; the page itself, which
// holds nothing of the run, /healthz and /readyz answer anybody.

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "central/display/admin_access.h"
#include "proto/transport/control/members.h"

namespace runnel {

// Called from the server's threads, several at a time; each must be quick, and must stay callable
// until the server is destroyed. state_json: what the page draws (state_json.h).
struct AdminCallbacks {
  std::function<std::string()> metrics_text;
  std::function<std::string()> state_json;
  std::function<bool()> ready;
  std::function<bool()> alive;
  MemberCalls orders = {};  // without these no orders are taken, and there are no traces
};

class AdminServer {
 public:
  // On loopback. port 0: any free one. AlreadyExists: the port is in use; InvalidArgument: it is none;
  // PermissionDenied: one below 1024 without the right to it.
  static absl::StatusOr<std::unique_ptr<AdminServer>> Start(int port, AdminCallbacks callbacks);
  // At another address. Also InvalidArgument: the address is not of this host, or the network has no
  // read token; Internal: the identity is broken.
  static absl::StatusOr<std::unique_ptr<AdminServer>> StartOnNetwork(int port, AdminNetwork network,
                                                                     AdminCallbacks callbacks);

  AdminServer(const AdminServer&) = delete;
  AdminServer& operator=(const AdminServer&) = delete;
  // Stops serving and waits for requests that are being answered.
  ~AdminServer();

  int port() const;
  // Of orders; random, the server's own.
  const std::string& token() const;
  // Whether /state was asked for within five seconds: a page that is open does so every second. Any
  // thread.
  bool has_reader() const;

 private:
  struct Impl;
  static absl::StatusOr<std::unique_ptr<AdminServer>> Serve(std::unique_ptr<Impl> impl, int port);
  explicit AdminServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace runnel
