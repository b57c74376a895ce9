/* Tutti: collective communication. The stable C interface (C99).
 *
 *   tutti_comm_t* world;
 *   if (tutti_init(&world, NULL) != TUTTI_OK) { fputs(tutti_error_text(), stderr); exit(1); }
 *   float sums[4] = {1, 2, 3, 4};
 *   tutti_buffer_t buffer = tutti_host(sums, 4, TUTTI_F32);
 *   if (tutti_all_reduce(world, buffer, buffer, TUTTI_SUM, NULL) != TUTTI_OK) ...
 *   tutti_destroy(world);
 *
 * Compile with: cc program.c $(pkg-config --cflags --libs tutti)
 * Start with:   tutti run -n 4 -- ./a.out
 *
 * RANKS. A job is a number of processes, its ranks 0 .. size-1. A communicator is a group of ranks.
 * All ranks of a communicator make the same collective calls in the same order, with arguments that
 * fit together; a call that does not is TUTTI_MISMATCH on every rank, with a text naming both
 * sides.
 *
 * ERRORS. Functions return a tutti_status_t; tutti_error_text() has the whole story: what happened,
 * where, the likely cause and the remedy. TUTTI_INVALID_ARGUMENT and TUTTI_UNSUPPORTED, found
 * before anything was sent, leave the communicator usable. After any other error of a communication
 * call the communicator is aborted for good on all its ranks: destroy it. A rank that dies is
 * reported to the others within seconds (TUTTI_RANK_DIED, tutti_error_rank()); those that are left
 * can go on in a communicator of their own: tutti_shrink().
 *
 * MEMORY. Buffers belong to the caller, need no alignment, and must stay alive and untouched until
 * the call has completed or failed, or the communicator is destroyed (tutti_destroy). Input and
 * output may be the same memory (in place); for all_gather and gather the input may be this rank's
 * part of the output, for reduce_scatter and scatter the output this rank's part of the input.
 * Other overlaps are not allowed. What the library hands out as tutti_comm_t* and tutti_work_t*
 * belongs to the caller, who gives it back with tutti_destroy() and tutti_work_free().
 *
 * THREADS. Any thread may call. Calls on one communicator are ordered by who comes first, so
 * concurrent collectives on one communicator need an order of the caller's making. Communicators
 * are independent of each other. One work is for one thread at a time. To end calls that are under
 * way, tutti_abort() from any thread: they return an error, and then the communicator can be
 * destroyed. After fork() the child must not call.
 *
 * UNITS. Counts are in elements, never in bytes, and 64 bits wide; 0 is fine. Times are in seconds.
 *
 * STABILITY. Programs compiled against one version run with every later version of the same soname.
 * Structs that may grow begin with their size; initialize them with the macro next to them.
 */
#ifndef TUTTI_H_
#define TUTTI_H_

#include <stddef.h>
#include <stdint.h>

#define TUTTI_VERSION_MAJOR 0
#define TUTTI_VERSION_MINOR 1
#define TUTTI_VERSION_PATCH 0

#if defined(__GNUC__)
#define TUTTI_API __attribute__((visibility("default")))
#else
#define TUTTI_API
#endif

/* The function keeps the address and reads nothing: compilers need not warn of unset memory. */
#if defined(__has_attribute)
#if __has_attribute(access)
#define TUTTI_ADDRESS_ONLY(parameter) __attribute__((access(none, parameter)))
#endif
#endif
#if !defined(TUTTI_ADDRESS_ONLY)
#define TUTTI_ADDRESS_ONLY(parameter)
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- values ---- */

typedef int32_t tutti_status_t;
enum {
  TUTTI_OK = 0,
  TUTTI_INVALID_ARGUMENT = 1, /* the caller's own argument is wrong */
  TUTTI_MISMATCH = 2,         /* two ranks made calls that do not fit together */
  TUTTI_RANK_DIED = 3,        /* a process of the job ended without leaving */
  TUTTI_CONNECTION_LOST = 4,  /* the path to a living rank broke */
  TUTTI_TIMEOUT = 5,          /* an operation's deadline passed */
  TUTTI_ABORTED = 6,          /* another rank, or this one's user, aborted the communicator */
  TUTTI_BOOTSTRAP = 7,        /* the ranks could not find or did not accept each other */
  TUTTI_SYSTEM = 8,           /* the operating system refused something */
  TUTTI_UNSUPPORTED = 9,      /* not available in this build, here, or for these arguments */
  TUTTI_INTERNAL = 10,        /* a bug in Tutti */
  TUTTI_CORRUPTED = 11        /* bytes changed between two ranks */
};

typedef int32_t tutti_dtype_t;
enum {
  TUTTI_I8 = 0,
  TUTTI_I16 = 1,
  TUTTI_I32 = 2,
  TUTTI_I64 = 3,
  TUTTI_U8 = 4,
  TUTTI_U16 = 5,
  TUTTI_U32 = 6,
  TUTTI_U64 = 7,
  TUTTI_F16 = 8,
  TUTTI_BF16 = 9,
  TUTTI_F32 = 10,
  TUTTI_F64 = 11,
  TUTTI_F8E4M3 = 12, /* OCP FP8; largest 448, no infinity: overflow gives NaN */
  TUTTI_F8E5M2 = 13, /* OCP FP8; largest 57344 */
  /* A value and an index, each as wide as the other: struct { float value; int32_t index; } ... */
  TUTTI_F32_I32 = 14,
  TUTTI_F64_I64 = 15,
  TUTTI_I32_I32 = 16,
  TUTTI_I64_I64 = 17
};

typedef int32_t tutti_op_t;
enum {
  TUTTI_SUM = 0, /* integers wrap around; 16- and 8-bit floats are computed in 32 bits */
  TUTTI_PROD = 1,
  TUTTI_MIN = 2, /* a NaN wins */
  TUTTI_MAX = 3,
  TUTTI_AVG = 4,  /* the sum divided by the number of ranks; integers truncate towards zero */
  TUTTI_BAND = 5, /* bitwise: integers only */
  TUTTI_BOR = 6,
  TUTTI_BXOR = 7,
  TUTTI_MINLOC = 8, /* pairs only: the smaller value; of equal ones the lower index */
  TUTTI_MAXLOC = 9,
  TUTTI_PREMUL_SUM = 10, /* the sum of each rank's input times its factor: tutti_request_t */
  TUTTI_USER = 11        /* a function of the caller's: tutti_request_t */
};

typedef int32_t tutti_collective_t;
enum {
  TUTTI_ALL_REDUCE = 0,
  TUTTI_ALL_GATHER = 1,
  TUTTI_REDUCE_SCATTER = 2,
  TUTTI_BROADCAST = 3,
  TUTTI_REDUCE = 4,
  TUTTI_BARRIER = 5,
  TUTTI_SEND = 6,
  TUTTI_GATHER = 7,
  TUTTI_SCATTER = 8,
  TUTTI_ALL_TO_ALL = 9,
  TUTTI_SCAN = 10,
  TUTTI_EXSCAN = 11,
  TUTTI_RECV = 12,
  TUTTI_RECV_REDUCE = 13 /* output[i] = output[i] op what is received; not AVG, PREMUL_SUM */
};

typedef int32_t tutti_space_t;
enum {
  TUTTI_HOST = 0,
  TUTTI_DEVICE = 1 /* memory of a CUDA device */
};

/* What a call works on. Input buffers are only read. */
typedef struct tutti_buffer {
  void* data;
  uint64_t count; /* elements */
  tutti_dtype_t dtype;
  tutti_space_t space;
} tutti_buffer_t;

/* A buffer in host memory. */
TUTTI_ADDRESS_ONLY(1)
static inline tutti_buffer_t tutti_host(const void* data, uint64_t count, tutti_dtype_t dtype) {
  tutti_buffer_t buffer;
  buffer.data = (void*)data; /* NOLINT: C has no other cast */
  buffer.count = count;
  buffer.dtype = dtype;
  buffer.space = TUTTI_HOST;
  return buffer;
}

typedef struct tutti_comm tutti_comm_t;         /* a communicator */
typedef struct tutti_work tutti_work_t;         /* a call under way */
typedef struct tutti_prepared tutti_prepared_t; /* a call that is planned */

typedef int32_t tutti_wire_t;
enum {
  TUTTI_WIRE_PLAIN = 0, /* as they are: elements of any type */
  TUTTI_WIRE_BF16 = 1,
  TUTTI_WIRE_F16 = 2,
  TUTTI_WIRE_F8E4M3 = 3,
  TUTTI_WIRE_F8E5M2 = 4,
  TUTTI_WIRE_MX8 = 5,  /* blocks of 32 E4M3 values with a scale: 33 bytes (OCP MX) */
  TUTTI_WIRE_MX4 = 6,  /* of 32 E2M1 values: 17 bytes */
  TUTTI_WIRE_INT8 = 7, /* of 256 integers with an f32 scale: 260 bytes */
  TUTTI_WIRE_SIGN = 8  /* of 256 signs with an f32 scale: 36 bytes */
};

/* How one call is made. Wherever it is taken, NULL stands for the defaults. */
typedef struct tutti_call_options {
  size_t size;           /* sizeof(tutti_call_options_t) */
  void* stream;          /* cudaStream_t that a call on device buffers is ordered by */
  const char* algorithm; /* NULL or "auto": the library chooses */
  double timeout; /* seconds from its start after which the call aborts the communicator; 0: */
                  /* TUTTI_TIMEOUT, INFINITY: no deadline */
  int64_t deterministic;  /* not 0: the bits depend on the inputs and the number of ranks only */
  int32_t tag;            /* of messages: 0 to TUTTI_LARGEST_TAG, of a receive also TUTTI_ANY_TAG */
  int32_t may_be_shorter; /* of a receive: not 0: the message may be shorter than the buffer */
  /* The call starts when these are complete, on whatever communicator, and fails if one does. */
  tutti_work_t* const* after;
  size_t after_count;
  int64_t queue; /* the queue of the communicator that the call goes into (tutti_open_queues()) */
  /* How f32 elements travel, alike on all ranks: each is rounded when it is sent, and each sum when
   * it is sent on. All ranks get what has travelled, and so the same bits. */
  int64_t wire; /* tutti_wire_t */
} tutti_call_options_t;
#define TUTTI_CALL_OPTIONS_INIT \
  { sizeof(tutti_call_options_t), NULL, NULL, 0, 0, 0, 0, NULL, 0, 0, TUTTI_WIRE_PLAIN }

/* Of receives: a message from whichever rank comes first, and with any tag. */
#define TUTTI_ANY_SOURCE (-1)
#define TUTTI_ANY_TAG (-1)
#define TUTTI_LARGEST_TAG 1073741822

/* What is known of a message. */
typedef struct tutti_message {
  size_t size; /* sizeof(tutti_message_t) */
  int32_t source;
  int32_t tag;
  tutti_dtype_t dtype;
  uint64_t count; /* elements */
} tutti_message_t;
#define TUTTI_MESSAGE_INIT \
  { sizeof(tutti_message_t), 0, 0, 0, 0 }

/* Where ranks that do not know each other yet meet: a store of the caller's, of small texts by key,
 * that all ranks reach (MPI's or PMIx's key exchange, a Redis, torch's Store). One value is asked
 * for: the address of rank 0. Functions return a negative number on failure; a get() that fails is
 * asked again, as of a store that comes back, until the time to join is up. They are called by
 * tutti_init(), or by a thread of the library's until tutti_init_end() returns. */
#define TUTTI_STORE_VALUE 1024
typedef struct tutti_store {
  size_t size; /* sizeof(tutti_store_t) */
  int (*set)(const char* key, const char* value, void* context);
  /* 1: the value is in `value`, of at most `bytes` with its end; 0: it is not there yet. Must not
   * wait for it: it is asked for again. */
  int (*get)(const char* key, char* value, size_t bytes, void* context);
  void (*remove)(const char* key, void* context); /* may be NULL: the value then stays */
  void* context;
} tutti_store_t;
#define TUTTI_STORE_INIT \
  { sizeof(tutti_store_t), NULL, NULL, NULL, NULL }

/* Who this process is in which job. */
typedef struct tutti_init_options {
  size_t size; /* sizeof(tutti_init_options_t) */
  int32_t rank;
  int32_t ranks;               /* in all; 0: rank, ranks and place come from the environment, */
                               /* which otherwise counts for what is missing only */
  const char* master_address;  /* where rank 0 is to be found: a host name or number, ... */
  int32_t master_port;         /* ... and a free port there; */
  const char* rendezvous_file; /* or else a file, not yet there, that all ranks can reach */
  const tutti_store_t* store;  /* or else this, before both; it must last until this rank has */
                               /* left the job */
  double timeout;              /* seconds to wait for the others; 0: TUTTI_INIT_TIMEOUT */
} tutti_init_options_t;
#define TUTTI_INIT_OPTIONS_INIT \
  { sizeof(tutti_init_options_t), 0, 0, NULL, 0, NULL, NULL, 0 }

/* An operator of the caller's: dst[i] = a[i] op b[i] for `count` elements; dst may be a or b. It
 * must be associative, and the same on every rank. It may run on any thread that waits. */
typedef void (*tutti_function_t)(void* dst, const void* a, const void* b, uint64_t count,
                                 tutti_dtype_t dtype, void* context);

/* A call as a value, for every collective in every form. Members that a collective has no use for
 * are ignored. */
typedef struct tutti_request {
  size_t size; /* sizeof(tutti_request_t) */
  tutti_collective_t collective;
  int32_t root; /* SEND, RECV: the other rank */
  tutti_buffer_t input;
  tutti_buffer_t output;
  tutti_op_t op;
  int32_t not_commutative;   /* USER: lower ranks are to stay on the left */
  double factor;             /* PREMUL_SUM */
  tutti_function_t function; /* USER; it and context are used until the call is complete */
  void* context;
  /* Not 0: blocks of unequal length (all_gatherv, reduce_scatterv, gatherv, scatterv, all_to_allv).
   * One count per rank for a buffer that consists of blocks: all_gather, gather: the output;
   * reduce_scatter, scatter: the input; all_to_all: both. gather and scatter need them at the root
   * only. Without displacements (from the buffer's start) the blocks lie one behind the other. */
  int64_t uneven;
  const uint64_t* input_counts;
  const uint64_t* input_displacements;
  const uint64_t* output_counts;
  const uint64_t* output_displacements;
} tutti_request_t;
#define TUTTI_REQUEST_INIT                                                                         \
  {                                                                                                \
    sizeof(tutti_request_t), 0, 0, {NULL, 0, 0, 0}, {NULL, 0, 0, 0}, 0, 0, 1, NULL, NULL, 0, NULL, \
        NULL, NULL, NULL                                                                           \
  }

/* ---- the library ---- */

/* "0.1.0", of the library that is loaded. */
TUTTI_API const char* tutti_version(void);

/* The whole text of the calling thread's last error; "" before the first. Valid until the thread's
 * next error. A successful call leaves it alone. */
TUTTI_API const char* tutti_error_text(void);

/* The rank of the job that this error is about: who died, gave up, is waited for first, or made the
 * other call; -1 where it is about none. */
TUTTI_API int32_t tutti_error_rank(void);

/* "rank died"; "unknown error" for a number that is no status. */
TUTTI_API const char* tutti_error_name(tutti_status_t status);

/* ---- communicators ---- */

/* Joins the job and makes *comm the communicator of all its ranks. Blocks until all are there, at
 * most TUTTI_INIT_TIMEOUT seconds. With NULL, or ranks = 0, the environment tells who this is:
 * RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT (as `tutti run` and torchrun set them), or RANK,
 * WORLD_SIZE and TUTTI_RENDEZVOUS=file:/PATH, or what Slurm, Open MPI, MPICH, PMIx or Kubernetes
 * set (`tutti info` says who did); without any of them, a job of one rank. On error *comm is
 * NULL. */
TUTTI_API tutti_status_t tutti_init(tutti_comm_t** comm, const tutti_init_options_t* options);

/* The same without blocking, so that one thread can be several ranks: it begins for each of them,
 * ends each, and makes their calls in groups. tutti_init_end() blocks, takes the handle, and makes
 * *comm what tutti_init() would, or NULL with the error. Each handle must be ended. Destroy the
 * last rank first: one that leaves waits for ranks above it, two seconds at most. */
typedef struct tutti_joining tutti_joining_t;
TUTTI_API tutti_status_t tutti_init_begin(tutti_joining_t** joining,
                                          const tutti_init_options_t* options);
TUTTI_API tutti_status_t tutti_init_end(tutti_joining_t* joining, tutti_comm_t** comm);

/* Ranks with the same color form a new communicator, ordered by key and then by rank. Collective.
 * With a negative color this rank joins none, and *result is NULL. */
TUTTI_API tutti_status_t tutti_split(tutti_comm_t* comm, int32_t color, int32_t key,
                                     tutti_comm_t** result);

/* Leaves the communicator and frees it and its tutti_alloc() memory. Calls in flight are abandoned:
 * when this returns nothing touches their host buffers any more. No other thread may be inside a
 * call on the communicator. Its works and prepared calls do not keep it and are still to be freed:
 * a work whose call was in flight has failed with TUTTI_ABORTED, and a prepared call cannot be
 * started (TUTTI_INVALID_ARGUMENT). NULL is allowed. */
TUTTI_API void tutti_destroy(tutti_comm_t* comm);

/* Collective. Opens queues 1 to `count` beside queue 0: the collectives of one queue run one after
 * the other, those of different queues side by side. Each has an order of calls and messages of its
 * own; every failure is that of the whole communicator. There are TUTTI_MOST_QUEUES at most. */
#define TUTTI_MOST_QUEUES 16
TUTTI_API tutti_status_t tutti_open_queues(tutti_comm_t* comm, int32_t count);

/* A new communicator of `count` ranks of this one, in this order: called by them only, without a
 * word from the others. Threads may make communicators of different ranks at the same time; a tag
 * tells apart those of the same ranks. TUTTI_MISMATCH where the ranks give another order,
 * TUTTI_TIMEOUT where one does not call. */
TUTTI_API tutti_status_t tutti_create(tutti_comm_t* comm, const int32_t* ranks, size_t count,
                                      int32_t tag, tutti_comm_t** created);

/* For when ranks have died, of a communicator that was aborted or not: a new one of those that are
 * left, in their order (MPI's ULFM: MPIX_Comm_shrink). All of them call, and any of them may die
 * meanwhile, rank 0 too. Those that go on are more than half of the members, or half with the first
 * of them, so that a job that is cut in two goes on at one side only: TUTTI_CONNECTION_LOST on the
 * other. Any number may go on once all others have certainly ended, as tutti run --min-ranks sees
 * it. Hosts that cannot reach each other are separated: TUTTI_CONNECTION_LOST on those that leave.
 * TUTTI_TIMEOUT: one does not call (the setting TUTTI_TIMEOUT); the same call may be made again,
 * and continues where it was. The old communicator is still to be destroyed. */
TUTTI_API tutti_status_t tutti_shrink(tutti_comm_t* comm, tutti_comm_t** left);

/* A communicator of all ranks of the job that are left, which `comm` must have, and of `count`
 * spares (tutti run --spares), as far as there are any: theirs is what tutti_init() returns, and
 * they come last. Errors as of tutti_shrink(). */
TUTTI_API tutti_status_t tutti_grow(tutti_comm_t* comm, int32_t count, tutti_comm_t** grown);

/* The same ranks agree on flags: those bits stay that all of them have given (MPIX_Comm_agree).
 * `living` (NULL, or room for tutti_size() ranks) and *count are who took part, in ascending order;
 * the same on all of them. */
TUTTI_API tutti_status_t tutti_agree(tutti_comm_t* comm, uint64_t* flags, int32_t* living,
                                     size_t* count);

/* Calls `hook` again and again while a thread waits for a call of this process's and nothing moves,
 * at least every millisecond: for programs whose peers depend on more than this library. It must
 * not wait for long. Of all communicators of the job; NULL takes it back. */
typedef void (*tutti_hook_t)(void* context);
TUTTI_API tutti_status_t tutti_while_waiting(tutti_comm_t* comm, tutti_hook_t hook, void* context);

/* Aborts the communicator on all its ranks, whose calls then fail with TUTTI_ABORTED and the
 * reason. */
TUTTI_API tutti_status_t tutti_abort(tutti_comm_t* comm, const char* reason);

/* TUTTI_OK while the communicator works, else what it was aborted with, by whomever: the error of
 * its next call. Neither blocks nor makes progress, and leaves tutti_error_text() alone. */
TUTTI_API tutti_status_t tutti_comm_status(const tutti_comm_t* comm);

/* This process's rank in the communicator, and its number of ranks; -1 where comm is NULL. */
TUTTI_API int32_t tutti_rank(const tutti_comm_t* comm);
TUTTI_API int32_t tutti_size(const tutti_comm_t* comm);

/* Zeroed memory that the other ranks of the host read where it lies: collectives copy nothing
 * aside. It ends with tutti_free(), or with the communicator. tutti_free() of NULL is allowed. */
TUTTI_API tutti_status_t tutti_alloc(tutti_comm_t* comm, size_t bytes, void** data);
TUTTI_API tutti_status_t tutti_free(tutti_comm_t* comm, void* data);

/* Makes the whole pages of memory that the caller has already got such memory, their addresses and
 * contents unchanged, until tutti_deregister() of the same pointer, or until the communicator ends;
 * the caller frees the memory only after that (what is freed before is no longer lent, nor is
 * private memory that is mapped there next). Nobody may touch it during either call.
 * TUTTI_INVALID_ARGUMENT where it is not plain private memory (malloc), or is locked (mlock).
 *
 * The pages are replaced: a device for which they were pinned before (cudaHostRegister,
 * ibv_reg_mr) would go on to use the old ones, unnoticed. Pin memory after it is registered, and
 * end that before tutti_deregister(). A child of fork() has pages of its own where it writes;
 * elsewhere it sees what the parent writes later. */
TUTTI_API tutti_status_t tutti_register(tutti_comm_t* comm, void* data, size_t bytes);
TUTTI_API tutti_status_t tutti_deregister(tutti_comm_t* comm, void* data);

/* Memory of this thread's current GPU, of any contents at first, for windows; it ends with
 * tutti_free(), or with the communicator. */
TUTTI_API tutti_status_t tutti_alloc_on_device(tutti_comm_t* comm, size_t bytes, void** data);

/* Collective. Makes a GPU's memory, as much on every rank, a window: kernels of the other ranks
 * read and write it where it lies, so that calls whose buffers are in windows, at the same place of
 * the same one on every rank, copy nothing aside. A success without effect where calls do not go by
 * kernels. All ranks end a window between the same calls, when none is under way. */
TUTTI_API tutti_status_t tutti_register_window(tutti_comm_t* comm, void* data, size_t bytes);
TUTTI_API tutti_status_t tutti_deregister_window(tutti_comm_t* comm, void* data);

/* ---- one-sided calls: access to other ranks' memory, without a call of theirs ----
 *
 * Offsets are in bytes, from the start of a rank's part. Memory that the ranks of a host share (a
 * window's own, or from tutti_alloc()) is read and written in place; all else goes by messages,
 * which the owner serves whenever one of its threads is inside a call, and with
 * TUTTI_PROGRESS_THREAD=1 also while it computes. Requests of one rank to another are served in the
 * order of its calls. tutti_put() and tutti_accumulate() return once their source may be changed;
 * the owner's memory has all of them after tutti_flush(). tutti_accumulate() and
 * tutti_compare_and_swap() are atomic against each other, 32 KiB at a time. A rank sees what others
 * wrote in its own part after tutti_fence(), or after tutti_wait_signal() of a signal that
 * followed. */

typedef struct tutti_window tutti_window_t;
typedef struct tutti_window_options {
  size_t size;             /* sizeof(tutti_window_options_t) */
  int64_t members_may_die; /* not 0: only calls to a dead rank fail, all others go on */
} tutti_window_options_t;
#define TUTTI_WINDOW_OPTIONS_INIT \
  { sizeof(tutti_window_options_t), 0 }

/* Collective. This rank's part is `memory`, which must last until the window has ended, or with
 * NULL zeroed memory of the window's own. Parts may differ in size. */
TUTTI_API tutti_status_t tutti_window_create(tutti_comm_t* comm, void* memory, size_t bytes,
                                             const tutti_window_options_t* options,
                                             tutti_window_t** window);
/* Collective: a fence, and the end of the window. Frees the handle, also where it fails. */
TUTTI_API tutti_status_t tutti_window_free(tutti_window_t* window);
/* Ends the window on this rank alone: calls of others to it fail. NULL is allowed. */
TUTTI_API void tutti_window_destroy(tutti_window_t* window);
/* Fails all calls on the window, on every rank, with this reason. */
TUTTI_API tutti_status_t tutti_window_abort(tutti_window_t* window, const char* reason);
/* This rank's part. */
TUTTI_API void* tutti_window_memory(const tutti_window_t* window);
/* Of a rank's part; 0 where there is no such rank. */
TUTTI_API uint64_t tutti_window_bytes(const tutti_window_t* window, int32_t rank);

TUTTI_API tutti_status_t tutti_put(tutti_window_t* window, tutti_buffer_t from, int32_t rank,
                                   uint64_t offset);
/* Blocks until the data are here. */
TUTTI_API tutti_status_t tutti_get(tutti_window_t* window, tutti_buffer_t into, int32_t rank,
                                   uint64_t offset);
/* window[i] = window[i] op from[i]; not TUTTI_AVG. */
TUTTI_API tutti_status_t tutti_accumulate(tutti_window_t* window, tutti_buffer_t from, int32_t rank,
                                          uint64_t offset, tutti_op_t op);
/* Writes `desired` where there is `expected`; *found is what was there. Integers of 32 and 64 bits,
 * in the low bits. Blocks. */
TUTTI_API tutti_status_t tutti_compare_and_swap(tutti_window_t* window, tutti_dtype_t dtype,
                                                uint64_t expected, uint64_t desired, int32_t rank,
                                                uint64_t offset, uint64_t* found);
/* Adds to a rank's counter `slot` (0 to 63), after all that this rank sent to it before. */
TUTTI_API tutti_status_t tutti_signal(tutti_window_t* window, int32_t rank, int32_t slot,
                                      uint64_t count);
/* Blocks until this rank's counter is at least `count`, and takes so much from it. */
TUTTI_API tutti_status_t tutti_wait_signal(tutti_window_t* window, int32_t slot, uint64_t count);
/* Returns when the rank's memory has all that this rank sent before; -1: of all ranks. */
TUTTI_API tutti_status_t tutti_flush(tutti_window_t* window, int32_t rank);
/* Collective: a flush of all ranks, and a barrier. */
TUTTI_API tutti_status_t tutti_fence(tutti_window_t* window);

/* ---- blocking calls: complete when they return ---- */

/* Output, on every rank: the combination of all ranks' inputs, element by element. */
TUTTI_API tutti_status_t tutti_all_reduce(tutti_comm_t* comm, tutti_buffer_t input,
                                          tutti_buffer_t output, tutti_op_t op,
                                          const tutti_call_options_t* options);

/* input: n elements; output: size * n, rank r's input at element r * n. */
TUTTI_API tutti_status_t tutti_all_gather(tutti_comm_t* comm, tutti_buffer_t input,
                                          tutti_buffer_t output,
                                          const tutti_call_options_t* options);

/* input: size * n elements; output: n, the combination of all ranks' elements from rank * n on. */
TUTTI_API tutti_status_t tutti_reduce_scatter(tutti_comm_t* comm, tutti_buffer_t input,
                                              tutti_buffer_t output, tutti_op_t op,
                                              const tutti_call_options_t* options);

/* n elements of the root's input to every rank's output. Other ranks' input data is not read (it
 * may be NULL); its count and dtype are those of the call. */
TUTTI_API tutti_status_t tutti_broadcast(tutti_comm_t* comm, tutti_buffer_t input,
                                         tutti_buffer_t output, int32_t root,
                                         const tutti_call_options_t* options);

/* Like all_reduce, but only the root's output is written (elsewhere its data may be NULL). */
TUTTI_API tutti_status_t tutti_reduce(tutti_comm_t* comm, tutti_buffer_t input,
                                      tutti_buffer_t output, tutti_op_t op, int32_t root,
                                      const tutti_call_options_t* options);

/* input: n elements; output, at the root only: size * n, rank r's input at element r * n. */
TUTTI_API tutti_status_t tutti_gather(tutti_comm_t* comm, tutti_buffer_t input,
                                      tutti_buffer_t output, int32_t root,
                                      const tutti_call_options_t* options);

/* input, at the root only: size * n elements, those from r * n on for rank r; output: n. */
TUTTI_API tutti_status_t tutti_scatter(tutti_comm_t* comm, tutti_buffer_t input,
                                       tutti_buffer_t output, int32_t root,
                                       const tutti_call_options_t* options);

/* size * n elements each: input block r goes to rank r, output block r comes from rank r. */
TUTTI_API tutti_status_t tutti_all_to_all(tutti_comm_t* comm, tutti_buffer_t input,
                                          tutti_buffer_t output,
                                          const tutti_call_options_t* options);

/* Output: the combination of the inputs of ranks 0 to this one (scan), or to the one below it
 * (exscan, which leaves rank 0's output alone). */
TUTTI_API tutti_status_t tutti_scan(tutti_comm_t* comm, tutti_buffer_t input, tutti_buffer_t output,
                                    tutti_op_t op, const tutti_call_options_t* options);
TUTTI_API tutti_status_t tutti_exscan(tutti_comm_t* comm, tutti_buffer_t input,
                                      tutti_buffer_t output, tutti_op_t op,
                                      const tutti_call_options_t* options);

/* Returns when all ranks have called. */
TUTTI_API tutti_status_t tutti_barrier(tutti_comm_t* comm, const tutti_call_options_t* options);

/* From one rank to another, or to itself (which never blocks: the message is kept until it is
 * received). A receive takes the oldest message from its source (or TUTTI_ANY_SOURCE) that has its
 * tag (options->tag; or TUTTI_ANY_TAG); a message goes to the oldest receive that accepts it.
 * dtypes must be equal, and counts unless options->may_be_shorter is set. Messages in front of the
 * one that a receive asks for are kept aside, up to TUTTI_UNEXPECTED_BYTES in all. Beyond that
 * their senders are held up until some of them are received, or a thread waits for the receive,
 * tests it or has a call follow it: such a receive is always met. */
TUTTI_API tutti_status_t tutti_send(tutti_comm_t* comm, tutti_buffer_t buffer, int32_t to,
                                    const tutti_call_options_t* options);
TUTTI_API tutti_status_t tutti_recv(tutti_comm_t* comm, tutti_buffer_t buffer, int32_t from,
                                    const tutti_call_options_t* options);

/* The same, and tells in *message what has come. Not between tutti_group_begin() and _end(). */
TUTTI_API tutti_status_t tutti_recv_message(tutti_comm_t* comm, tutti_buffer_t buffer, int32_t from,
                                            const tutti_call_options_t* options,
                                            tutti_message_t* message);
/* Waits until there is a message that a receive from this source with this tag would take, tells it
 * in *message, and leaves it there. */
TUTTI_API tutti_status_t tutti_probe(tutti_comm_t* comm, int32_t from, int32_t tag,
                                     tutti_message_t* message);
/* Does not wait: *found says whether there is one. */
TUTTI_API tutti_status_t tutti_probe_now(tutti_comm_t* comm, int32_t from, int32_t tag, int* found,
                                         tutti_message_t* message);

/* ---- asynchronous calls: the same, begun only; *work is then a call under way ---- */

TUTTI_API tutti_status_t tutti_all_reduce_async(tutti_comm_t* comm, tutti_buffer_t input,
                                                tutti_buffer_t output, tutti_op_t op,
                                                const tutti_call_options_t* options,
                                                tutti_work_t** work);
TUTTI_API tutti_status_t tutti_all_gather_async(tutti_comm_t* comm, tutti_buffer_t input,
                                                tutti_buffer_t output,
                                                const tutti_call_options_t* options,
                                                tutti_work_t** work);
TUTTI_API tutti_status_t tutti_reduce_scatter_async(tutti_comm_t* comm, tutti_buffer_t input,
                                                    tutti_buffer_t output, tutti_op_t op,
                                                    const tutti_call_options_t* options,
                                                    tutti_work_t** work);
TUTTI_API tutti_status_t tutti_broadcast_async(tutti_comm_t* comm, tutti_buffer_t input,
                                               tutti_buffer_t output, int32_t root,
                                               const tutti_call_options_t* options,
                                               tutti_work_t** work);
TUTTI_API tutti_status_t tutti_reduce_async(tutti_comm_t* comm, tutti_buffer_t input,
                                            tutti_buffer_t output, tutti_op_t op, int32_t root,
                                            const tutti_call_options_t* options,
                                            tutti_work_t** work);
TUTTI_API tutti_status_t tutti_gather_async(tutti_comm_t* comm, tutti_buffer_t input,
                                            tutti_buffer_t output, int32_t root,
                                            const tutti_call_options_t* options,
                                            tutti_work_t** work);
TUTTI_API tutti_status_t tutti_scatter_async(tutti_comm_t* comm, tutti_buffer_t input,
                                             tutti_buffer_t output, int32_t root,
                                             const tutti_call_options_t* options,
                                             tutti_work_t** work);
TUTTI_API tutti_status_t tutti_all_to_all_async(tutti_comm_t* comm, tutti_buffer_t input,
                                                tutti_buffer_t output,
                                                const tutti_call_options_t* options,
                                                tutti_work_t** work);
TUTTI_API tutti_status_t tutti_scan_async(tutti_comm_t* comm, tutti_buffer_t input,
                                          tutti_buffer_t output, tutti_op_t op,
                                          const tutti_call_options_t* options, tutti_work_t** work);
TUTTI_API tutti_status_t tutti_exscan_async(tutti_comm_t* comm, tutti_buffer_t input,
                                            tutti_buffer_t output, tutti_op_t op,
                                            const tutti_call_options_t* options,
                                            tutti_work_t** work);
TUTTI_API tutti_status_t tutti_barrier_async(tutti_comm_t* comm,
                                             const tutti_call_options_t* options,
                                             tutti_work_t** work);
TUTTI_API tutti_status_t tutti_send_async(tutti_comm_t* comm, tutti_buffer_t buffer, int32_t to,
                                          const tutti_call_options_t* options, tutti_work_t** work);
TUTTI_API tutti_status_t tutti_recv_async(tutti_comm_t* comm, tutti_buffer_t buffer, int32_t from,
                                          const tutti_call_options_t* options, tutti_work_t** work);

/* ---- calls as values: everything above, and what it leaves out ---- */

TUTTI_API tutti_status_t tutti_run(tutti_comm_t* comm, const tutti_request_t* request,
                                   const tutti_call_options_t* options);
TUTTI_API tutti_status_t tutti_start(tutti_comm_t* comm, const tutti_request_t* request,
                                     const tutti_call_options_t* options, tutti_work_t** work);

/* Plans a call once, to be started many times; one start must be complete before the next. It does
 * not keep the communicator: once that is destroyed it cannot be started. */
TUTTI_API tutti_status_t tutti_prepare(tutti_comm_t* comm, const tutti_request_t* request,
                                       const tutti_call_options_t* options,
                                       tutti_prepared_t** prepared);
TUTTI_API tutti_status_t tutti_prepared_start(tutti_prepared_t* prepared, tutti_work_t** work);
TUTTI_API void tutti_prepared_free(tutti_prepared_t* prepared);

/* Between the two, no call of this thread blocks, whatever its form and communicator;
 * tutti_group_end() returns when all of them are complete. So sends and receives may be named in
 * any order. Groups nest. */
TUTTI_API tutti_status_t tutti_group_begin(void);
TUTTI_API tutti_status_t tutti_group_end(void);

/* ---- work ---- */

/* Returns when the call is complete: TUTTI_OK, or how it failed. Any number of times. */
TUTTI_API tutti_status_t tutti_wait(tutti_work_t* work);

/* Makes progress; *done says whether the call is complete. */
TUTTI_API tutti_status_t tutti_test(tutti_work_t* work, int* done);

/* Calls `callback` once, when the call has ended: with TUTTI_OK, or with how it failed and a text
 * that is there during the call, as tutti_error_rank() is. By a thread that tests or waits, for
 * whatever call of the job, or by the progress thread (TUTTI_PROGRESS_THREAD); at once if the call
 * is over. It may make calls, but must not wait. The work may be freed meanwhile. */
typedef void (*tutti_end_function_t)(tutti_status_t status, const char* text, void* context);
TUTTI_API tutti_status_t tutti_work_on_end(tutti_work_t* work, tutti_end_function_t callback,
                                           void* context);

/* What a receive that is complete has received. */
TUTTI_API tutti_status_t tutti_work_message(const tutti_work_t* work, tutti_message_t* message);

/* Like tutti_wait(), for at most `seconds`; then *done is 0 and the call goes on. */
TUTTI_API tutti_status_t tutti_wait_for(tutti_work_t* work, double seconds, int* done);

/* Aborts the call's communicator on all its ranks, if the call is not complete. */
TUTTI_API tutti_status_t tutti_work_abort(tutti_work_t* work, const char* reason);

/* Gives the handle back. A call that is not complete goes on; its buffers stay in use until the
 * communicator is destroyed. NULL is allowed. */
TUTTI_API void tutti_work_free(tutti_work_t* work);

#ifdef __cplusplus
}
#endif

#endif /* TUTTI_H_ */
