runnel_test(central_files_test
  SOURCES atomic_file_test.cc checkpoint_test.cc codec_report_test.cc journal_test.cc metrics_registry_test.cc progress_test.cc
          run_settings_test.cc summary_test.cc weights_test.cc
  DEPS runnel_central_files)
runnel_test(central_admin_test SOURCES admin_server_test.cc DEPS runnel_central_admin)
runnel_test(central_process_test SOURCES worker_process_test.cc DEPS runnel_central_files)
