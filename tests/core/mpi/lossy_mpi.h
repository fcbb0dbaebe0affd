// A fake MPI in one process for endpoint.cc: two members and the messages between them, which a
// test may lose. Messages match by tag, in order.
#ifndef HVD_FT_TESTS_LOSSY_MPI_H
#define HVD_FT_TESTS_LOSSY_MPI_H

#include <mpi.h>

#include <cstring>
#include <deque>
#include <string>
#include <vector>

struct Underway {
  int to, tag;
  std::string data;
};
inline std::deque<Underway> underway;

struct Posted {
  int member, tag;
  void* to;
  bool done;
};
inline std::vector<Posted> posted;  // by request

inline int next_member = 0;  // of the endpoint made next; its communicator has the same number

extern "C" {
int MPI_Isend_c(const void* data, MPI_Count bytes, MPI_Datatype, int to, int tag, MPI_Comm from,
                MPI_Request* request) {
  underway.push_back({to, tag, {static_cast<const char*>(data), static_cast<size_t>(bytes)}});
  posted.push_back({from, tag, nullptr, true});
  *request = static_cast<MPI_Request>(posted.size() - 1);
  return MPI_SUCCESS;
}
int MPI_Irecv_c(void* data, MPI_Count, MPI_Datatype, int, int tag, MPI_Comm member,
                MPI_Request* request) {
  posted.push_back({member, tag, data, false});
  *request = static_cast<MPI_Request>(posted.size() - 1);
  return MPI_SUCCESS;
}
int MPI_Test(MPI_Request* request, int* done, MPI_Status*) {
  *done = 1;
  if (*request == MPI_REQUEST_NULL) return MPI_SUCCESS;
  Posted& mine = posted[static_cast<size_t>(*request)];
  for (auto at = underway.begin(); !mine.done && at != underway.end(); ++at) {
    if (at->to != mine.member || at->tag != mine.tag) continue;
    std::memcpy(mine.to, at->data.data(), at->data.size());
    mine.done = true;
    underway.erase(at);
    break;
  }
  *done = mine.done;
  if (mine.done) *request = MPI_REQUEST_NULL;
  return MPI_SUCCESS;
}
int MPI_Comm_dup_with_info(MPI_Comm, MPI_Info, MPI_Comm* made) {
  *made = next_member++;
  return MPI_SUCCESS;
}
int MPI_Comm_rank(MPI_Comm communicator, int* rank) {
  *rank = communicator;
  return MPI_SUCCESS;
}
int MPI_Comm_size(MPI_Comm, int* size) {
  *size = 2;
  return MPI_SUCCESS;
}

// The other functions that endpoint.cc calls.
int MPI_Init(int*, char***) { return MPI_SUCCESS; }
int MPI_Initialized(int* yes) { return *yes = 1, MPI_SUCCESS; }
int MPI_Finalized(int* yes) { return *yes = 0, MPI_SUCCESS; }
int MPI_Info_create(MPI_Info*) { return MPI_SUCCESS; }
int MPI_Info_set(MPI_Info, const char*, const char*) { return MPI_SUCCESS; }
int MPI_Info_free(MPI_Info*) { return MPI_SUCCESS; }
int MPI_Comm_set_errhandler(MPI_Comm, MPI_Errhandler) { return MPI_SUCCESS; }
int MPI_Comm_free(MPI_Comm*) { return MPI_SUCCESS; }
int MPI_Error_string(int, char*, int*) { return MPI_SUCCESS; }
int MPI_Iprobe(int, int, MPI_Comm, int*, MPI_Status*) { return MPI_SUCCESS; }
int MPI_Wait(MPI_Request*, MPI_Status*) { return MPI_SUCCESS; }
int MPI_Waitall(int, MPI_Request*, MPI_Status*) { return MPI_SUCCESS; }
int MPI_Send_c(const void*, MPI_Count, MPI_Datatype, int, int, MPI_Comm) { return MPI_SUCCESS; }
int MPI_Ssend_c(const void*, MPI_Count, MPI_Datatype, int, int, MPI_Comm) { return MPI_SUCCESS; }
int MPI_Get_library_version(char*, int*) { return MPI_SUCCESS; }
int MPI_Query_thread(int*) { return MPI_SUCCESS; }
int MPI_T_init_thread(int, int*) { return MPI_SUCCESS; }
int MPI_T_finalize(void) { return MPI_SUCCESS; }
int MPI_T_cvar_get_index(const char*, int*) { return MPI_SUCCESS; }
int MPI_T_cvar_handle_alloc(int, void*, MPI_T_cvar_handle*, int*) { return MPI_SUCCESS; }
int MPI_T_cvar_read(MPI_T_cvar_handle, void*) { return MPI_SUCCESS; }
int MPI_T_cvar_handle_free(MPI_T_cvar_handle*) { return MPI_SUCCESS; }
}

#endif  // HVD_FT_TESTS_LOSSY_MPI_H
