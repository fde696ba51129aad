/*
 * How two ends agree on the keys of a session, checked by Spin: sections 3 and 7 of docs/secure-sessions.md, whose rules are cited by
 * number. `.ci/run model` runs it.
 *
 * C connects, S accepts. Both are state machines without I/O, as in the code: what happens to an end is done at once, in one step. So
 * an end is its variables and its handlers, named after the code: c_... is `src/proto/agreement/{asking,confirming}.rs` and
 * `connection/noise.rs`, s_... is `endpoint/agreements.rs` and `agreement/answering.rs`. The one process is the attacker, who decides
 * what happens next.
 *
 * The network is what the attacker knows. What was sent once can be delivered at any time, in any order, any number of times, or never:
 * so he drops, doubles, reorders and replays, and nothing needs a queue. He makes up what is said in the clear: a refusal or ABORT, a
 * RETRY, an ANSWER whose tag is wrong. He cannot seal, nor make a message of the handshake. Two ends have the same keys if they have the
 * same answer to the same message, and nobody else has them: for that the framework is trusted, it is not what is checked here.
 *
 * In two ways:
 *   - as it is, he also drops. At any moment he may stop: from then on whatever is sent arrives once. What must become of both ends
 *     then, and within how many of C's waits, is asserted in `calm`. He can stop in every state that can be reached, so none is a dead
 *     end.
 *   - with -DFORGER he drops nothing: all that the ends send arrives before C's next wait is over. Then nothing that he makes up or
 *     replays ends an agreement or a session.
 *
 * -DMUTATION=1 and so on make the mistakes that the list at the end names. Spin must find each.
 */

#ifndef MUTATION
#define MUTATION 0
#endif

/* Numbers. A tick is the wait between two HELLOs, 0.5 s at most (R109). */
#define MESSAGES 2          /* agreements that C begins, one after the other, from one address with one conv */
#define ATTACKED_ANSWERS 3  /* answers that S computes while the attacker is there */
#define ANSWERS 5           /* and in all */
#define REFUSALS 3          /* what is refused ends an agreement after so many (R110) */
#define PATIENCE 4          /* ticks since the first of them: 2 s */
#define RETRIES 3           /* cookies that are followed by a HELLO at once (R108) */
#define DOUBT 2             /* ticks from the second RESET to the end; in the code 3 s (R120) */
#define ROUNDS 9            /* ticks within which all is well again */

/* What S's end of the address and conv of C is called, and that of the same conv at another address, of the attacker. */
#define HERE 0
#define ELSEWHERE 1

mtype:state = { Asking, Confirming, Session, Closed };
mtype:reason = { NotTold, Refused, Reset };
mtype:next = { Nothing, Last, Keys, Distrusted };
mtype:cookie = { NoCookie, WrongCookie, TrueCookie };
mtype:fault = { Match, WrongPsk, UntrustedClient, UntrustedServer };

/* ---- Chosen at the beginning ---- */

bool three;        /* XX, with three messages; else NN or NK, with two */
bool early;        /* C has early data, and S takes some (R122 to R125) */
mtype:fault fault; /* what does not match, if anything */

/* ---- C ---- */

byte c_m = 1;                  /* its message */
mtype:state c_is = Asking;
byte c_n;                      /* the answer that it has keys of */
mtype:cookie c_cookie = NoCookie;
byte c_retries, c_refusals, c_waited;
bool c_heard;                  /* something of S was opened: S's reset key is known, too */
byte c_resets, c_doubted;      /* RESETs that count, and ticks since the second one */
mtype:reason c_told = NotTold;

/* ---- S, by address: HERE and ELSEWHERE ---- */

byte s_live[2];                /* the session: that of this answer */
bool s_answering[2];           /* early data was taken, and no packet has opened: the stream says may_be_replayed (R123) */
bool s_unsure[2];              /* its peer has not shown that it hears S: it is half-open, and gives way to newer keys (R125) */
byte s_answers;                /* computed so far. Each has an ephemeral key of its own, as S draws one (R121) */
byte answer_to[ANSWERS + 1];   /* the message that each is for */
bool answer_at[ANSWERS + 1];   /* and its sender's address */
mtype:next pending[ANSWERS + 1] = Nothing;
bool remembered[MESSAGES + 1]; /* messages with early data that were seen (R123) */

/* ---- What was sent, besides answers, which all were ---- */

bool hello[MESSAGES + 1];
bool retry;                    /* a true one, for C's message */
bool last[ANSWERS + 1];        /* C's last message for an answer */
bool c_sealed[ANSWERS + 1];    /* a packet of C under the keys of an answer */
bool c_answered[ANSWERS + 1];  /* the same, of a C that has heard S under them: only with S's times or tag is it such a packet (R61) */
bool s_sealed[ANSWERS + 1];    /* a packet of S under them */
bool reset;                    /* RESET under the key of C's address and conv. All its sessions have the same (R120) */

/* Sent and not there yet, between C and S. Without the attacker it arrives, once. */
bool due_hello, due_retry, due_refusal, due_last, due_c_sealed, due_s_sealed, due_reset;
byte due_answer;

/* ---- What the properties are about ---- */

bool has_keys[ANSWERS + 1];    /* C has taken this answer, once */
bool began[ANSWERS + 1];       /* S has begun a session with it */
bool lost[ANSWERS + 1];        /* S has forgotten what it had of it, as it may */
byte taken[MESSAGES + 1];      /* how often S has taken a message's early data */
byte restarts;
byte forged_retries;

hidden byte i, round, limit;
hidden byte asks, must_live, must_reset, must_tell;

/* ======== C ======== */

inline c_send_hello() { hello[c_m] = true; due_hello = true }

/* Nobody sends what is sealed before it has keys. */
inline c_seal() {
  assert(c_n != 0 && has_keys[c_n]);
  c_sealed[c_n] = true;
  c_answered[c_n] = c_answered[c_n] || c_heard;
  due_c_sealed = true
}

inline c_send_last() { last[c_n] = true; due_last = true }

inline c_close(why) {
#ifdef FORGER
  /* What is made up ends nothing that would live. */
  assert(fault != Match);
#endif
  c_is = Closed;
  c_told = why;
  c_forget_asking();
  c_heard = false; c_resets = 0; c_doubted = 0
}

inline c_forget_asking() { c_cookie = NoCookie; c_retries = 0; c_refusals = 0; c_waited = 0; retry = false }

/* The user connects again, with the same port and conv. What there was is gone. */
inline c_connect_again() {
#ifdef FORGER
  /* It had told S that it ends. */
  if :: s_live[HERE] != 0 && answer_to[s_live[HERE]] == c_m -> s_end(HERE) :: else fi;
#endif
  c_m++;
  c_is = Asking; c_n = 0; c_heard = false; c_resets = 0; c_doubted = 0; c_told = NotTold;
  c_forget_asking();
  due_all_gone();
  c_send_hello()
}

/* Something was refused, by whomever (R110). */
inline c_refused() {
  if
  :: MUTATION == 2 -> c_close(Refused)
  :: MUTATION != 2 && c_refusals < REFUSALS -> c_refusals++
  :: else
  fi
}

/* A wait is over. */
inline c_tick() {
  if
  :: (c_is == Asking || c_is == Confirming) && c_refusals > 0 && c_waited < PATIENCE -> c_waited++
  :: c_is == Session && c_resets == 2 -> c_doubted++
  :: else
  fi;
  if
  :: (c_is == Asking || c_is == Confirming) && c_refusals == REFUSALS && c_waited == PATIENCE -> c_close(Refused)
  :: c_is == Session && c_doubted == DOUBT -> c_close(Reset)
  :: else
  fi;
  if
  :: c_is == Asking ->
     c_send_hello();
     if :: MUTATION == 15 -> c_seal() :: else fi
     /* R111: the last message in front of packets. */
  :: c_is == Confirming ->
     if :: MUTATION != 5 -> c_send_last() :: else fi;
     c_seal()
     /* Data, or PING. */
  :: c_is == Session -> c_seal()
  :: else
  fi
}

/* R108. */
inline c_on_retry(cookie) {
  if
  :: c_is == Asking && hello[c_m] ->
     c_cookie = (MUTATION == 12 -> NoCookie : cookie);
     if
     :: c_retries < RETRIES ->
        /* Answers to the HELLOs before count no more. */
        due_answer = 0;
        c_retries++;
        c_send_hello()
     :: else
     fi
  :: else
  fi
}

inline c_on_refusal() {
  if :: c_is == Asking || c_is == Confirming && MUTATION != 13 -> c_refused() :: else fi
}

/* An answer to another message does not open, and says nothing. Nor does one that is made up. */
inline c_on_answer(n) {
  if
  :: c_is == Asking && answer_to[n] == c_m && fault == UntrustedServer -> c_refused()
  :: c_is == Asking && answer_to[n] == c_m && fault != UntrustedServer ->
     c_n = n;
     has_keys[n] = true;
     c_forget_asking();
     if
     :: three -> c_is = Confirming; c_send_last()
     :: else -> c_is = Session
     fi;
     c_seal()
  :: else
  fi
}

inline c_on_sealed(n) {
  if
  :: (c_is == Confirming || c_is == Session) && n == c_n ->
     c_is = Session;
     c_heard = true;
     c_refusals = 0; c_waited = 0;
     if :: MUTATION != 11 -> c_resets = 0; c_doubted = 0 :: else fi
  :: else
  fi
}

/* R120. The key is for the address that C began at. C asks at once, so whatever comes next is behind its question. */
inline c_on_reset() {
  if
  :: c_is == Session && c_heard && answer_at[c_n] == HERE ->
     if
     :: MUTATION == 8 -> c_close(Reset)
     :: MUTATION != 8 && c_resets == 0 -> c_resets = 1; c_seal()
     :: MUTATION != 8 && c_resets == 1 -> c_resets = 2
     :: else
     fi
  :: else
  fi
}

/* ======== S ======== */

/* The peer of a session has shown that it is there: it has the keys, and the session is the only one with them. */
inline s_know_peer(at) {
  assert(has_keys[s_live[at]] && fault == Match);
  s_answering[at] = false
}

inline s_begin(at, n, unsure) {
  assert(!began[n]);
  began[n] = true;
  s_live[at] = n;
  s_unsure[at] = unsure
}

/* `after_accepting_sealed`: what waited on the address and conv is gone, but for what is newer than a session whose peer may not be
   there. */
inline s_drop_pending(at) {
  for (i : 1 .. s_answers) {
    if
    :: answer_at[i] == at && pending[i] != Nothing && MUTATION != 3 && !(s_unsure[at] && i > s_live[at]) ->
       pending[i] = Nothing;
       /* What goes with an older one was promised to somebody. */
       lost[i] = lost[i] || s_live[at] != i && MUTATION != 17
    :: else
    fi
  }
}

/* Its peer has heard S, so no recording is what has begun it. */
inline s_confirm(at) {
  s_unsure[at] = false;
  s_drop_pending(at)
}

inline s_end(at) {
  lost[s_live[at]] = true;
  s_live[at] = 0;
  s_answering[at] = false;
  s_unsure[at] = false
}

inline s_send_answer(at, n) {
  if :: at == HERE && answer_to[n] == c_m -> due_answer = n :: else fi
}

inline s_send_refusal() { due_refusal = true }

/* A session sends nothing that its peer could not open, unless it has taken early data (R91). */
inline s_seal(at) {
  assert(has_keys[s_live[at]] || s_answering[at]);
  s_sealed[s_live[at]] = true;
  due_s_sealed = due_s_sealed || at == HERE
}

/* R113, R124. `asks`: a HELLO without a true cookie is to bring one. */
inline s_on_hello(at, m, cookie, asks) {
  if
  :: fault == WrongPsk -> s_send_refusal()
     /* The session has it. One whose peer is known opens it in vain. */
  :: fault != WrongPsk && s_live[at] != 0 && (!s_unsure[at] || MUTATION == 7) ->
     if :: s_answering[at] && answer_to[s_live[at]] == m -> s_send_answer(at, s_live[at]) :: else fi
  :: fault != WrongPsk && s_live[at] != 0 && s_answering[at] && answer_to[s_live[at]] == m && MUTATION != 7 ->
     s_send_answer(at, s_live[at])
     /* Beside a session whose peer may not be there, too: R125. */
  :: else ->
     s_find_pending(at, m);
     if
     :: i != 0 && MUTATION != 4 -> s_send_answer(at, i)
     :: !(i != 0 && MUTATION != 4) && asks && cookie != TrueCookie ->
        retry = retry || at == HERE && m == c_m && c_is == Asking;
        due_retry = due_retry || at == HERE && m == c_m
     :: !(i != 0 && MUTATION != 4) && !(asks && cookie != TrueCookie) && s_answers < limit -> s_answer(at, m)
     :: else
     fi
  fi
}

/* In `i` what was answered to this message, or to ANY, and waits on the address and conv; or 0. */
#define ANY 0
inline s_find_pending(at, m) {
  i = s_answers;
  do
  :: i > 0 && !(pending[i] != Nothing && answer_at[i] == at && (m == ANY || answer_to[i] == m)) -> i--
  :: else -> break
  od
}

inline s_answer(at, m) {
  if :: MUTATION == 4 && i != 0 -> pending[i] = Nothing :: else fi;
  s_find_pending(at, ANY);
  s_answers++;
  answer_to[s_answers] = m;
  answer_at[s_answers] = at;
  if
  :: MUTATION == 1 -> s_begin(at, s_answers, false); s_know_peer(at)
  :: MUTATION != 1 && early && i == 0 && s_live[at] == 0 && (!remembered[m] || MUTATION == 6) ->
     s_begin(at, s_answers, true);
     s_answering[at] = true;
     taken[m]++;
     /* A message's early data is taken once, as long as S remembers it (R123). */
     assert(taken[m] <= 1 + restarts);
     if :: MUTATION == 9 -> s_know_peer(at) :: else fi
  :: else -> pending[s_answers] = (three -> Last : Keys)
  fi;
  /* Also what was not taken. */
  remembered[m] = early;
  s_send_answer(at, s_answers)
}

/* Whether agreements are heeded: a session that is sure of its peer has nobody else to be heard by. */
#define S_AGREES(at) (s_live[at] == 0 || s_unsure[at])

inline s_on_last(at, n) {
  if
  :: S_AGREES(at) && answer_at[n] == at && pending[n] == Last && fault != UntrustedClient -> pending[n] = Keys
  :: S_AGREES(at) && answer_at[n] == at && pending[n] == Last && fault == UntrustedClient ->
     pending[n] = Distrusted;
     s_send_refusal()
     /* R110: as often as it comes. */
  :: S_AGREES(at) && answer_at[n] == at && pending[n] == Distrusted -> s_send_refusal()
  :: else
  fi
}

/* `answered`: it shows that its sender has heard S under these keys. */
inline s_on_sealed(at, n, answered) {
  if
  :: s_live[at] != 0 && s_live[at] == n ->
     s_know_peer(at);
     if :: answered && s_unsure[at] -> s_confirm(at) :: else fi;
     s_seal(at)
  :: s_live[at] != n && S_AGREES(at) && answer_at[n] == at && pending[n] == Keys ->
     /* R112, R115: only now. R125: a session whose peer was not heard gives way. */
     if :: s_live[at] != 0 -> s_end(at) :: else fi;
     s_find_pending(at, ANY);
     /* Where somebody has agreed since, this one may be a recording. */
     s_begin(at, n, i > n && MUTATION != 17);
     s_know_peer(at);
     s_drop_pending(at);
     s_seal(at)
  :: s_live[at] == 0 && !(answer_at[n] == at && pending[n] == Keys) ->
     /* R120: whose keys it does not have, whoever is agreeing beside. At another address it has another key. */
     s_find_pending(at, ANY);
     reset = reset || at == HERE && MUTATION != 14 && !(MUTATION == 16 && i != 0);
     due_reset = due_reset || at == HERE && MUTATION != 14 && !(MUTATION == 16 && i != 0)
  :: else
  fi
}

/* It writes, or asks. */
inline s_tick(at) { if :: s_live[at] != 0 -> s_seal(at) :: else fi }

/* R93: 30 s have passed, or others needed the room. */
inline s_forget(n) { pending[n] = Nothing; lost[n] = true }

inline s_restart() {
  restarts++;
  for (i : 1 .. s_answers) {
    pending[i] = Nothing;
    lost[i] = true
  }
  for (i : 1 .. MESSAGES) { remembered[i] = false }
  s_live[HERE] = 0; s_answering[HERE] = false; s_unsure[HERE] = false;
  s_live[ELSEWHERE] = 0; s_answering[ELSEWHERE] = false; s_unsure[ELSEWHERE] = false;
  /* Its cookies are of no use any more. */
  retry = false;
  if :: c_cookie == TrueCookie -> c_cookie = WrongCookie :: else fi;
  /* A copy of the machine, saved while it ran, has the same randomness once more. */
  if :: MUTATION == 10 -> s_answers = 0 :: else fi
}

/* ======== The network ======== */

inline due_all_gone() {
  due_hello = false; due_retry = false; due_refusal = false; due_answer = 0; due_last = false;
  due_c_sealed = false; due_s_sealed = false; due_reset = false
}

/* An attacker who drops keeps all that was sent, and nothing is owed. */
inline keep_or_drop() {
#ifdef FORGER
  skip
#else
  due_all_gone()
#endif
}

#define IS_DUE (due_hello || due_retry || due_refusal || due_answer != 0 || due_last || due_c_sealed || due_s_sealed || due_reset)

/* One of those that are due arrives. The last message goes in front of packets (R111). */
inline deliver_due(asks) {
  limit = ANSWERS;
  if
  :: due_hello -> due_hello = false; s_on_hello(HERE, c_m, c_cookie, asks)
  :: !due_hello && due_last -> due_last = false; s_on_last(HERE, c_n)
  :: !due_hello && !due_last && due_c_sealed -> due_c_sealed = false; s_on_sealed(HERE, c_n, c_answered[c_n])
  :: else ->
     if
     :: due_retry -> due_retry = false; c_on_retry(TrueCookie)
     :: !due_retry && due_refusal -> due_refusal = false; c_on_refusal()
     :: !due_retry && !due_refusal && due_answer != 0 -> i = due_answer; due_answer = 0; c_on_answer(i)
     :: !due_retry && !due_refusal && due_answer == 0 && due_s_sealed ->
        due_s_sealed = false;
        if :: s_live[HERE] != 0 -> c_on_sealed(s_live[HERE]) :: else fi
     :: else -> due_reset = false; c_on_reset()
     fi
  fi
}

inline tick() { c_tick(); s_tick(HERE); s_tick(ELSEWHERE) }

/* The attacker has stopped: what was on its way is lost, and what is sent from here on arrives. */
inline calm() {
  due_all_gone();
  /* Both ends match, S has lost nothing that C has keys of, and C's patience is not over before it can be heard. C cannot get in
     where S has a live session with an earlier C of the same address and conv, which has heard S: R120, last paragraph. */
  must_live = fault == Match && (s_live[HERE] == c_n || S_AGREES(HERE)) && (
    c_is == Asking && c_refusals < REFUSALS ||
    c_is == Confirming && !lost[c_n] && answer_at[c_n] == HERE && c_refusals < REFUSALS ||
    c_is == Session && !lost[c_n] && answer_at[c_n] == HERE && (c_resets < 2 || c_doubted + 1 < DOUBT));
  /* S has lost the session, and has no other of the address and conv. Others may be agreeing. */
  must_reset = c_is == Session && c_heard && lost[c_n] && answer_at[c_n] == HERE && s_live[HERE] == 0;
  must_tell = fault != Match && (c_is == Asking || c_is == Confirming && !lost[c_n] && answer_at[c_n] == HERE);
  for (round : 1 .. ROUNDS) {
    tick();
    do
    :: IS_DUE -> deliver_due(asks)
    :: else -> break
    od
  }
  /* Both have the same keys, and know it. */
  assert(!must_live ||
    c_is == Session && c_heard && s_live[HERE] == c_n && !s_answering[HERE] && answer_to[c_n] == c_m);
  /* The user is told why, long before dead_timeout. */
  assert(!must_reset || c_is == Closed && c_told == Reset);
  assert(!must_tell || c_is == Closed && c_told == Refused);
  /* Else one end has keys that the other has not, and C's user is told by dead_timeout, which is always running then. */
  forget_all()
}

/* All ends look alike, so that they are one state. */
inline forget_all() {
  due_all_gone();
  three = false; early = false; fault = Match;
  c_m = 1; c_is = Asking; c_n = 0; c_cookie = NoCookie; c_retries = 0; c_refusals = 0; c_waited = 0;
  c_heard = false; c_resets = 0; c_doubted = 0; c_told = NotTold;
  s_answers = 0; retry = false; reset = false; restarts = 0; forged_retries = 0;
  for (i : 0 .. 1) { s_live[i] = 0; s_answering[i] = false; s_unsure[i] = false }
  for (i : 0 .. MESSAGES) { remembered[i] = false; hello[i] = false; taken[i] = 0 }
  for (i : 0 .. ANSWERS) {
    answer_to[i] = 0; answer_at[i] = 0; pending[i] = Nothing; last[i] = false; c_sealed[i] = false; c_answered[i] = false;
    s_sealed[i] = false;
    has_keys[i] = false; began[i] = false; lost[i] = false
  }
  i = 0; round = 0; asks = false; must_live = false; must_reset = false; must_tell = false
}

/* ======== The attacker ======== */

/*
 * One thing keeps an answer away without dropping it, so that what is made up beside it ends C's agreement: to bring C an answer that S
 * has made for another address, before its own comes. C talks under keys then that S has for that address alone, until `dead_timeout`
 * (R108). A forger does not do that.
 */
#ifdef FORGER
#define CARRIES(n) (answer_at[n] == HERE)
#else
#define CARRIES(n) true
#endif

#define SENDS_HELLO(at, m, asks) \
  :: d_step { hello[m] -> limit = ATTACKED_ANSWERS; s_on_hello(at, m, NoCookie, asks); keep_or_drop() }

#define SENDS_OF_ANSWER(n) \
  :: d_step { n <= s_answers && CARRIES(n) -> c_on_answer(n); keep_or_drop() } \
  :: d_step { last[n] -> s_on_last(answer_at[n], n); keep_or_drop() } \
  :: d_step { c_sealed[n] -> s_on_sealed(HERE, n, false); keep_or_drop() } \
  :: d_step { c_answered[n] -> s_on_sealed(HERE, n, true); keep_or_drop() } \
  :: d_step { c_sealed[n] && answer_at[n] == ELSEWHERE -> s_on_sealed(ELSEWHERE, n, false); keep_or_drop() } \
  :: d_step { c_answered[n] && answer_at[n] == ELSEWHERE -> s_on_sealed(ELSEWHERE, n, true); keep_or_drop() } \
  :: d_step { s_sealed[n] -> c_on_sealed(n); keep_or_drop() }

active proctype Attacker() {
  if
  :: MUTATION != 5 && MUTATION != 13 -> early = true /* Those two are mistakes with three messages only. */
  :: three = true
  :: skip
  fi;
  if
  :: fault = Match
  :: fault = WrongPsk
  :: three -> fault = UntrustedClient
  :: three -> fault = UntrustedServer
  fi;
  d_step { c_send_hello(); keep_or_drop() }

  do
  /* Time passes. */
#ifdef FORGER
  :: d_step { !IS_DUE -> tick() }
  :: d_step { IS_DUE -> deliver_due(false) }
  :: d_step { due_hello -> deliver_due(true) }
#else
  :: d_step { tick(); keep_or_drop() }
#endif

  /* What was said comes, once more or at last. */
  SENDS_HELLO(HERE, 1, false)
  SENDS_HELLO(HERE, 1, true)
  SENDS_HELLO(ELSEWHERE, 1, false)
  SENDS_HELLO(HERE, 2, false)
  SENDS_HELLO(HERE, 2, true)
  SENDS_HELLO(ELSEWHERE, 2, false)
  SENDS_OF_ANSWER(1)
  SENDS_OF_ANSWER(2)
  SENDS_OF_ANSWER(3)
  :: d_step { retry -> c_on_retry(TrueCookie); keep_or_drop() }
  :: d_step { reset -> c_on_reset(); keep_or_drop() }

  /* What is made up: refusal or ABORT, and a cookie. Somebody who sees each HELLO and makes up one for each keeps C from beginning as
     long as he does so, and S asks for cookies (R108). An ANSWER or a packet that does not open changes nothing, at either end. */
  :: d_step { c_on_refusal(); keep_or_drop() }
#ifdef FORGER
  :: d_step { c_is == Asking && forged_retries < RETRIES -> forged_retries++; c_on_retry(WrongCookie) }
#else
  :: d_step { c_on_retry(WrongCookie); keep_or_drop() }
#endif

  /* What happens to the ends. */
#ifdef FORGER
  :: d_step { c_m < MESSAGES && !IS_DUE -> c_connect_again() }
#else
  :: d_step { c_m < MESSAGES -> c_connect_again(); keep_or_drop() }
  :: d_step { pending[1] != Nothing -> s_forget(1) }
  :: d_step { pending[2] != Nothing -> s_forget(2) }
  :: d_step { pending[3] != Nothing -> s_forget(3) }
  /* Without a record: that was a minute ago, or its peer was not heard (R119). */
  :: d_step { s_live[HERE] != 0 -> s_end(HERE) }
  :: d_step { s_live[ELSEWHERE] != 0 -> s_end(ELSEWHERE) }
  :: d_step { restarts == 0 -> s_restart() }

  /* He stops. */
  :: d_step { asks = false; calm() } -> break
  :: d_step { asks = true; calm() } -> break
#endif
  od
}

/*
 * Mistakes, each of which ends in a counterexample:
 *
 * MUTATION 1: a session begins with the first HELLO (R112)
 * MUTATION 2 (FORGER): a refusal or ABORT ends asking at once (R110)
 * MUTATION 3: S keeps the keys of an agreement whose session has begun, so that a replay begins another one (R115)
 * MUTATION 4: a HELLO that comes again gets another answer, in place of the first (R113)
 * MUTATION 5: C sends its last message once (R111)
 * MUTATION 6: S does not remember whose early data it has taken (R123)
 * MUTATION 7 (FORGER): a session whose peer may not be there has other HELLOs wait, for longer than C's patience (R125)
 * MUTATION 8 (FORGER): one RESET ends a session at once (R120)
 * MUTATION 9: a session with early data is taken for one whose peer is there (R123)
 * MUTATION 10: S draws the same ephemeral keys again after a restart (R121)
 * MUTATION 11 (FORGER): what opens does not end the doubt (R120)
 * MUTATION 12: C does not return the cookie (R108)
 * MUTATION 13: a refusal of the last message is not heeded (R110)
 * MUTATION 14: a server that was started again does not say so (R120)
 * MUTATION 15: C sends what was written before it has keys (R109)
 * MUTATION 16: somebody who is agreeing keeps a server that was started again from saying so (R120)
 * MUTATION 17: a packet that was kept back begins a session in place of a newer agreement (R112)
 */
