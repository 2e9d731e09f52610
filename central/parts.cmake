# Files that central reads and writes, what it shows, and the processes that it starts: the parts around the coordinator.
find_package(OpenSSL REQUIRED)
find_package(prometheus-cpp REQUIRED)
find_package(nlohmann_json REQUIRED)
pkg_check_modules(httplib REQUIRED IMPORTED_TARGET cpp-httplib)

runnel_library(runnel_central_files
  SOURCES atomic_file.cc checkpoint.cc codec_report.cc codec_settings.cc initial_weights.cc journal.cc journal_records.cc json_fields.cc
          metrics_registry.cc plan_json.cc progress.cc run_settings.cc summary.cc weights_digest.cc worker_process.cc
  DEPS runnel_compress runnel_control runnel_base absl::str_format nlohmann_json::nlohmann_json prometheus-cpp::core OpenSSL::Crypto)

runnel_library(runnel_central_admin
  SOURCES admin_page.cc admin_server.cc
  DEPS absl::status absl::statusor absl::strings PkgConfig::httplib Threads::Threads)
