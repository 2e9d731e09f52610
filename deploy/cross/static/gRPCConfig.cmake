# gRPC's libraries are in Abseil's group (abslConfig.cmake); the generator runs on this machine.
if(NOT TARGET gRPC::grpc++)
  add_library(gRPC::grpc++ INTERFACE IMPORTED)
  set_target_properties(gRPC::grpc++ PROPERTIES INTERFACE_LINK_LIBRARIES absl::status)
  find_program(RUNNEL_GRPC_PLUGIN grpc_cpp_plugin REQUIRED)
  add_executable(gRPC::grpc_cpp_plugin IMPORTED)
  set_target_properties(gRPC::grpc_cpp_plugin PROPERTIES IMPORTED_LOCATION ${RUNNEL_GRPC_PLUGIN})
endif()
