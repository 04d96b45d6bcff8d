"""Action servers of asynchronous samplers: those of synchronous ones, in other processes, under their documented names."""

from rlpyt.samplers.parallel.gpu import action_server

AsyncActionServer = action_server.ActionServer
AsyncAlternatingActionServer = action_server.AlternatingActionServer
AsyncNoOverlapAlternatingActionServer = action_server.NoOverlapAlternatingActionServer
